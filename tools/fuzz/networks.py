"""Bent documents of networks: whatever they say, they end in a refusal that names a place, or in a network that trains.

    python -m tools.fuzz.networks --seconds 600 --seed 7

No other error may come, nothing may be allocated beyond the bound of elements, and no file may be opened.
"""

import argparse
import copy
import json
import random
import sys
import time
from collections import Counter
from typing import Any

from contract.networks import checks
from contract.networks.errors import NetworkError
from contract.networks.operators import OPERATORS
from contract.nn.graphs import shapes, trying

BOUND = 1_000_000
"""Values of one result: what passes is computed here many times."""
_JUNK: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 7, 64, 2**31, 2**53, -(2**53), 2**63, 0.5, -0.0, 1e-30, 3e38, 1e300,
    "", "x", "input", "same", "none", "../../etc/passwd", "__import__('os')", [], [1], [0], [-1], [1, 2], [[]], {},
    {"node": "input"}, {"node": "n"}, {"tensor": "w"}, {"dtype": "float16"}, {"dtype": "bool"}, {"float": "-inf"},
)  # fmt: skip
_NAMES = sorted(OPERATORS)


def places(tree: Any) -> list[tuple[Any, Any]]:
    """Return where something stands in a tree: (its holder, its key)."""
    keys = list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    found = [(tree, key) for key in keys]
    return found + [deeper for key in keys for deeper in places(tree[key])]


def bent(document: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    """Return a copy with one to four changes."""
    made = copy.deepcopy(document)
    for _ in range(draw.randint(1, 4)):
        holder, key = draw.choice(places(made))
        act = draw.randrange(5)
        if act == 0 and isinstance(holder, dict):
            del holder[key]
        elif act == 1 and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(draw.choice(holder)))
        elif act == 2 and key == "op":
            holder[key] = draw.choice(_NAMES)
        elif act == 3:
            other, there = draw.choice(places(made))
            holder[key] = copy.deepcopy(other[there])
        else:
            holder[key] = copy.deepcopy(draw.choice(_JUNK))
        if not places(made):
            return made
    return made


def outcome(document: dict[str, Any]) -> str:
    """Return what becomes of a document: `checks`, `shapes` or `trying` refused it, or it `trains`."""
    stage = "checks"
    try:
        read = checks.read(json.dumps(document).encode())
        stage = "shapes"
        shapes.check(read)
        stage = "trying"
        trying.check(read)
    except NetworkError as error:
        assert str(error), "a refusal that says nothing"
        return stage
    return "trains"


def fuzz(documents: list[dict[str, Any]], draw: random.Random, *, count: int, seconds: float) -> Counter[str]:
    """Bend documents and count what becomes of them; the first other error ends it."""
    seen: Counter[str] = Counter()
    ends = time.monotonic() + seconds
    while seen.total() < count and time.monotonic() < ends:
        seen[outcome(bent(draw.choice(documents), draw))] += 1
    return seen


def main() -> int:
    """Bend the documents of the tests for a while and print what became of them."""
    from tests.contract.networks.documents import GOOD, layers

    parser = argparse.ArgumentParser("python -m tools.fuzz.networks", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    shapes.LARGEST, shapes.ALL = BOUND, 10 * BOUND
    whole = [GOOD, layers([4, 6, 5, 3], norm=True), layers([4, 5, 1], "discriminator")]
    print(dict(fuzz(whole, random.Random(options.seed), count=sys.maxsize, seconds=options.seconds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
