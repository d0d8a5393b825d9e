"""A newcomer's terminal: lines of a page, typed in a folder beside a running service."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def typed(lines: str, folder: Path, url: str) -> str:
    """Type lines in a folder; return what they print."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    told = {"PATH": path, "PYTHONPATH": str(ROOT), "POTSTILL_URL": url, "POTSTILL_TORCH_THREADS": "1"}
    env = {name: value for name, value in os.environ.items() if not name.startswith("POTSTILL_")} | told
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", lines], cwd=folder, env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{lines}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout
