"""`make evidence`: run experiments and rewrite docs/evidence.md; exits with 1 when a bar was missed."""

import argparse
import sys
from pathlib import Path

from experiments.evidence import page
from experiments.evidence.run import EXPERIMENTS, run
from potstill.console import CliError, print_error


def _seed(text: str) -> int:
    """Return a seed.

    Raises:
        ValueError: it is not a whole number from 0 to a million.
    """
    seed = int(text)
    if not 0 <= seed <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{seed} is not a seed from 0 to 1000000")
    return seed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="evidence", description=__doc__)
    parser.add_argument("--only", action="append", default=[], help=f"one of {', '.join(EXPERIMENTS)}; repeatable")
    parser.add_argument(
        "--seeds", type=int, choices=range(1, 21), metavar="N", help="how many; else each its own number"
    )
    parser.add_argument(
        "--first",
        type=_seed,
        default=0,
        metavar="SEED",
        help="first seed; with it or --seeds, the fresh seeds that judge a bar after those that chose it are not run",
    )
    parser.add_argument("--rounds", type=int, default=10, help="of D1's federations; the bars are for 10")
    parser.add_argument("--report", type=Path, default=Path("evidence-report"), help="for raw results and logs")
    parser.add_argument(
        "--page", type=Path, default=Path("docs/evidence.md"), help="the page to write, with its plots beside it"
    )
    parser.add_argument("--data-dir", type=Path, help="of mnist, cifar10 and agnews; default POTSTILL_DATA_DIR")
    parser.add_argument("--summary", action="store_true", help="run nothing; summarise the page's figures anew")
    return parser


def main() -> int:
    """Run; return the exit code."""
    given = _parser().parse_args()
    if given.summary:
        page.write(given.page, {})
        return 0
    try:
        return run(given.only, given.seeds, given.rounds, given.report, given.page, given.data_dir, given.first)
    except CliError as error:
        print_error(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
