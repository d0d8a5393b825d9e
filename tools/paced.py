"""Start a program with other constants, since a process of its own has no fixture to change them in.

python -m tools.paced '{"service.app.SWEEP_SECONDS": 0.3}' uvicorn service.app:create_app --factory

With `"clock": "<file>"` among them the program's clock is ahead by as many seconds as that file says, at any time.
"""

import importlib
import json
import runpy
import sys
import time
from pathlib import Path


def follow(file: Path) -> None:
    """Let this process's clock be moved by what a file says; monotonic time goes on as it does."""
    real = time.time

    def moved() -> float:
        try:
            return real() + float(file.read_text(encoding="utf-8") or 0)
        except (FileNotFoundError, ValueError):  # not yet there, or just being written
            return real()

    time.time = moved


def main(words: list[str]) -> None:
    """Change the constants, which must be there, then run the module that is named as `python -m` does."""
    text, module, *rest = words
    changes = json.loads(text)
    if "clock" in changes:
        follow(Path(changes.pop("clock")))
    for name, value in changes.items():
        place, _, constant = name.rpartition(".")
        found = importlib.import_module(place)
        getattr(found, constant)
        setattr(found, constant, value)
    sys.argv = [module, *rest]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
