"""`make chaos`: the storm from the command line; exits with 1 when it found a fault."""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from tools.chaos import secure
from tools.chaos.servers import Postgres, Redis
from tools.chaos.storm import run, say
from tools.chaos.world import RECIPES


def main() -> int:
    """Run the storm; return the exit code."""
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=208, help="of rounds in the clear")
    parser.add_argument("--secure-kills", type=int, default=60, help="of secure rounds, their devices among them")
    parser.add_argument("--seed", type=int, default=20261128)
    parser.add_argument("--modes", nargs="+", choices=["embedded", "distributed"], help="default: both")
    parser.add_argument("--recipes", nargs="+", choices=list(RECIPES), default=list(RECIPES))
    parser.add_argument("--json", type=Path, help="write the summary to this file, too")
    options = parser.parse_args()
    modes = options.modes or ["embedded", "distributed"]
    if "distributed" in modes and not (Postgres.there() and Redis.there()):
        if options.modes:
            parser.error("initdb or redis-server is not installed")
        say("NO initdb OR redis-server HERE: only the embedded mode is put to the test")
        modes = ["embedded"]
    folder = Path(tempfile.mkdtemp(prefix="potstill-storm-"))
    report = run(folder, options.kills, options.seed, modes, options.recipes)
    secure.run(folder, options.secure_kills, options.seed, modes, report)
    print(f"seed {report.seed}\n{report.table()}")
    for fault in report.faults:
        print("FAULT", fault)
    if options.json:
        options.json.write_text(json.dumps(vars(report) | {"total": report.total}, indent=2))
    if report.faults:
        print(f"logs and data are in {folder}")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
