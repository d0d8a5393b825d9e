"""Start a program with other constants, since a process of its own has no fixture to change them in.

python -m tools.paced '{"service.app.SWEEP_SECONDS": 0.3}' uvicorn service.app:create_app --factory
"""

import importlib
import json
import runpy
import sys


def main(words: list[str]) -> None:
    """Change the constants, which must be there, then run the module that is named as `python -m` does."""
    changes, module, *rest = words
    for name, value in json.loads(changes).items():
        place, _, constant = name.rpartition(".")
        found = importlib.import_module(place)
        getattr(found, constant)
        setattr(found, constant, value)
    sys.argv = [module, *rest]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
