"""How far Reflux carries on the digits, and what makes it better, by stacked federations.

    python -m experiments.stacked --out carry.json --plot docs/img/reflux-carry.png
    python -m experiments.stacked --only "alpha 0.1" --arms sharper --seeds 0 1 2 3 4

A setting takes about half a minute of one core. The table is that of `experiments.carry`.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from experiments.carry import AND, AVG, CAPPED, DF, DIGITS, PLAIN, REFLUX, SHARP, Found, draw, table
from experiments.stacked.federation import Arm, Course, Labels, balanced, by, capped, case_of, equal, run, true_counts

TAU, LAMBDA = 0.3, 0.5
SHARPER = (5.0, 1.0)
"""Beta and tau of `reflux-sharp`."""
PERFECT = "perfect weights"


def _reflux(scale: float = 1.0, tau: float | None = TAU) -> Labels:
    return by(balanced(scale), bank=True, tau=tau)


ARMS: dict[str, dict[str, Arm]] = {
    "carry": {
        PLAIN: Arm(by(lambda case: case.plain())),
        REFLUX: Arm(_reflux(), LAMBDA),
        SHARP: Arm(_reflux(*SHARPER), LAMBDA),
        PLAIN + AND: Arm(by(lambda case: case.plain()), LAMBDA),
        CAPPED: Arm(by(capped)),
        DF: Arm(by(equal)),
        AVG: Arm(None),
        AVG + AND: Arm(None, LAMBDA),
    },
    "sharper": {
        PLAIN: Arm(by(lambda case: case.plain())),
        PERFECT: Arm(by(true_counts)),
        REFLUX: Arm(_reflux(), LAMBDA),
        "Reflux without confidence": Arm(_reflux(tau=None), LAMBDA),
        SHARP: Arm(_reflux(*SHARPER), LAMBDA),
        "sharp without confidence": Arm(_reflux(5, None), LAMBDA),
        "sharp without balancing": Arm(by(lambda case: case.plain(5), bank=True, tau=1.0), LAMBDA),
        "sharp without the bank": Arm(by(balanced(5), tau=1.0), LAMBDA),
    },
}


def measure(name: str, arms: Mapping[str, Arm], seeds: Sequence[int]) -> dict[str, list[Course]]:
    """Run a setting of `experiments.carry`; return the arms' courses, in the order of the seeds."""
    return run([case_of(DIGITS[name], seed) for seed in seeds], arms)


def closed(found: Mapping[str, Any]) -> dict[str, float]:
    """Return which share of the distance from plain odds to perfect weights each arm makes, by accuracies of runs."""
    means = {arm: sum(map(sum, runs)) / sum(map(len, runs)) for arm, runs in found.items()}
    whole = means[PERFECT] - means[PLAIN]
    return {arm: (mean - means[PLAIN]) / whole for arm, mean in means.items() if arm not in (PLAIN, PERFECT)}


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(DIGITS), default=list(DIGITS), metavar="SETTING")
    parser.add_argument("--arms", choices=list(ARMS), default="carry")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, help="JSON of accuracies; settings that it has are not run again")
    parser.add_argument("--plot", type=Path)
    told = parser.parse_args()
    torch.set_num_threads(1)
    found: Found = json.loads(told.out.read_text()) if told.out and told.out.exists() else {}
    for name in told.only:
        if name not in found:
            print(f"{name} …", file=sys.stderr, flush=True)
            courses = measure(name, ARMS[told.arms], told.seeds)
            found[name] = {arm: [each.model for each in runs] for arm, runs in courses.items()}
        if told.out is not None:
            told.out.write_text(json.dumps(found), encoding="utf-8")
    print("\n".join(table(found)))
    for name, arms in found.items():
        if PERFECT in arms:
            print(f"{name}, of the distance to perfect weights: {closed(arms)}")
    if told.plot is not None:
        draw(told.plot, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
