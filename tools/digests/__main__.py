"""Write the digests of all that tiny federations make, or say what differs from digests that were written before.

python -m tools.digests --output before.json
python -m tools.digests --compare before.json
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy and torch are loaded: sums depend on how many share them

import argparse  # noqa: E402
import fnmatch  # noqa: E402
import json  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Iterator, Sequence  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import torch  # noqa: E402

import contract  # noqa: E402
from tools.digests.cases import CASES  # noqa: E402
from tools.digests.record import record  # noqa: E402

SEEDS = (5, 6)
_SHOWN = 60


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, or 1 where a case cannot be run or differs."""
    options = _parser().parse_args(arguments)
    known = json.loads(options.compare.read_text()) if options.compare else None
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    names = [name for name in CASES if fnmatch.fnmatch(name, options.only) or options.only in name]
    if not names:
        print(f"no case is called {options.only!r}; there are {', '.join(CASES)}")
        return 2
    print(
        f"{len(names)} cases, seeds {', '.join(map(str, options.seeds))}, code of {Path(contract.__path__[0]).parent}"
    )
    found = run(names, options.seeds, verbose=options.verbose)
    if options.output:
        options.output.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    failed = [f"{name}: {tree['error']}" for name, tree in found.items() if "error" in tree]
    print(*failed, sep="\n", end="\n" if failed else "")
    if known is None:
        return int(bool(failed))
    whole = options.only == "*" and tuple(options.seeds) == SEEDS
    return compare(known if whole else {name: known[name] for name in known if name in found}, found)


def run(names: Sequence[str], seeds: Sequence[int], *, verbose: bool = False) -> dict[str, Any]:
    """Return what each case made, by `name#seed`."""
    found: dict[str, Any] = {}
    for name in names:
        started = time.monotonic()
        for seed in seeds:
            try:
                found[f"{name}#{seed}"] = record(CASES[name], seed)
            except Exception as error:  # noqa: BLE001 - whatever it is, the other cases are wanted
                found[f"{name}#{seed}"] = {"error": f"{type(error).__name__}: {error}"}
        if verbose:
            print(f"{time.monotonic() - started:6.1f} s  {name}", flush=True)
    return found


def compare(before: dict[str, Any], after: dict[str, Any]) -> int:
    """Print what differs; return 1 if anything does. Cases that were not there before are named and do not count."""
    fresh = sorted(set(after) - set(before))
    lines = [f"{name}: was not run" for name in sorted(set(before) - set(after))]
    for name in sorted(set(before) & set(after)):
        lines += _differences(name, before[name], after[name])
    print(*lines[:_SHOWN], sep="\n", end="\n" if lines else "")
    if len(lines) > _SHOWN:
        print(f"… and {len(lines) - _SHOWN} more")
    if fresh:
        print(f"new, with nothing to compare: {', '.join(fresh)}")
    cases = len({line.partition(":")[0] for line in lines})
    print(f"{len(before)} runs compared, {cases} differ" if lines else f"{len(before)} runs compared, all equal")
    return int(bool(lines))


def _differences(name: str, before: Any, after: Any) -> list[str]:
    old, new = dict(_leaves(before)), dict(_leaves(after))
    return [
        f"{name}: {path}: {old.get(path, 'was not there')} -> {new.get(path, 'is gone')}"
        for path in sorted({*old, *new})
        if old.get(path) != new.get(path) or (path in old) != (path in new)
    ]


def _leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of each leaf; a list is one, an empty dict too."""
    if isinstance(tree, dict) and tree:
        for key, value in tree.items():
            yield from _leaves(value, f"{path} / {key}" if path else str(key))
    else:
        yield path, json.dumps(tree, sort_keys=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tools.digests", description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, help="where the digests go, as JSON")
    parser.add_argument("--compare", type=Path, help="digests that were written before; exits 1 where these differ")
    parser.add_argument("--only", default="*", help="part of a case's name, or a pattern: 'fuse/*'")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--verbose", action="store_true", help="print each case and its time")
    return parser


if __name__ == "__main__":
    sys.exit(main())
