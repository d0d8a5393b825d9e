"""The figures of a bench for people."""

from typing import Any

from potstill.console import out, print_table

COLUMNS = ("part", "what", "unit", "ours", "other", "ratio", "processor", "against")


def number(value: float) -> str:
    """Return three digits that count."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def cells(figure: dict[str, Any]) -> list[str]:
    """Return a figure's cells, as `COLUMNS` has them after the part."""
    least, most = figure["ratios"]
    processor = figure["processor_ratio"]
    return [
        figure["what"],
        figure["unit"],
        number(figure["ours"]),
        number(figure["other"]),
        f"{figure['ratio']:.2f} ({least:.2f} to {most:.2f})",
        "–" if processor is None else f"{processor:.2f}",
        figure["against"],
    ]


def shown(found: dict[str, Any]) -> list[str]:
    """Print the table; return what is beyond its limit, which is said below it."""
    named = [(part, each) for part, measured in found["parts"].items() for each in measured["figures"]]
    print_table(COLUMNS, [[part, *cells(each)] for part, each in named])
    beyond = [each for _, each in named if each["limit"] is not None and each["ratio"] > each["limit"]]
    said = [f"{each['what']}: {each['ratio']:.2f}, beyond its limit of {each['limit']:g}" for each in beyond]
    for line in said:
        out().print(line)
    return said
