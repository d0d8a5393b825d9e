"""Print the measures of the house in one table; with --check, fail where one is beyond its bound.

python -m tools.house --check
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tools.house import arrows, names, reach, sizes, touch
from tools.house.source import House

_SHOWN = 10


@dataclass(frozen=True)
class Measure:
    """One line of the table. `bound`: the largest value that holds; None where there is none.

    `seen` is what was counted, or the largest of it, one line each.
    """

    name: str
    value: float
    bound: float | None = None
    of: int | None = None
    seen: Sequence[str] = ()

    @property
    def holds(self) -> bool:
        """Whether the value is within its bound."""
        return self.bound is None or self.value <= self.bound


def measures(house: House) -> list[Measure]:
    """Return all measures of a checkout."""
    return [*_reached(house), *_touched(house), *_arrows(house), *_named(house), *_sized(house)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return 1 with --check where a measure is beyond its bound."""
    parser = argparse.ArgumentParser("python -m tools.house", description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="exit 1 where a measure is beyond its bound")
    parser.add_argument("--all", action="store_true", help="show all that was counted, not the first ten")
    parser.add_argument("--root", type=Path, default=Path(), help="of the checkout")
    options = parser.parse_args(arguments)
    found = measures(House(options.root))
    print(*map(_row, found), sep="\n")
    for each in found:
        _show(each, None if options.all else _SHOWN)
    beyond = [each.name for each in found if not each.holds]
    print(f"\n{len(found)} measures, {len(beyond)} beyond their bounds")
    return int(options.check and bool(beyond))


def _show(each: Measure, shown: int | None) -> None:
    if each.seen:
        print(f"\n{each.name}:", *each.seen[:shown], sep="\n  ")
    if shown is not None and len(each.seen) > shown:
        print(f"  and {len(each.seen) - shown:,} more, which --all shows")


def _row(each: Measure) -> str:
    value = f"{each.value:g}" + (f" of {each.of:,}" if each.of is not None else "")
    bound = "" if each.bound is None else f"at most {each.bound:g}"
    return f"{each.name:62} {value:>14}  {bound:12} {'' if each.holds else 'BEYOND'}".rstrip()


def _reached(house: House) -> list[Measure]:
    return [
        Measure(
            f"lines reached by tests only: {each.package}",
            each.unreached_lines,
            reach.MEASURED[each.package],
            each.lines,
            [str(definition) for definition in each.unreached],
        )
        for each in reach.reach(house)
    ]


def _touched(house: House) -> list[Measure]:
    found = touch.choices(house)
    counts = [len(each.files) for each in found] or [0]
    rules = [len(each.files) for each in found if touch.RULE.match(each.name)] or [0]
    seen = [f"{len(each.files)} {each.name} ({each.kind}): {', '.join(each.files)}" for each in found]
    return [
        Measure("product files that know a rule of rounds or devices, median", median(rules), 2, len(rules)),
        Measure("product files that know a choice, median", median(counts), 3, len(counts)),
        Measure("product files that know a choice, largest", max(counts), 8, seen=seen),
    ]


def _arrows(house: House) -> list[Measure]:
    found = []
    for each in arrows.arrows(house):
        where = each.package or "packages"
        size = f"{each.rooms} rooms, {each.arrows} arrows, {each.floors} floors"
        found.append(Measure(f"arrows up in {where} ({size})", len(each.up), 0, seen=each.up))
        found.append(Measure(f"arrows that go round in {where}", len(each.round), 0, seen=each.round))
    return found


def _named(house: House) -> list[Measure]:
    wire, methods, settings = names.wire_names(house), names.methods_in_service(house), sizes.settings(house)
    return [
        Measure(f"names that travel, outside {names.WIRE_HOME}", len(wire), 0, seen=wire),
        Measure("lines of service/ that name a method", len(methods), 0, seen=methods),
        Measure("settings", len(settings), 37),
    ]


def _sized(house: House) -> list[Measure]:
    functions, files = sizes.functions(house), sizes.files(house)
    return [
        Measure("longest function", functions[0].lines, 59, seen=[f"{each.lines} {each.where}" for each in functions]),
        Measure("median function", sizes.median_function(house), 10, len(functions)),
        Measure("longest file", files[0].lines, 399, seen=[f"{each.lines} {each.where}" for each in files]),
        Measure("lines", sum(each.lines for each in files)),
    ]


if __name__ == "__main__":
    sys.exit(main())
