"""docs/performance.md: what a bench measured, part by part, and sections by hand, which stay when it is rewritten."""

import re
from pathlib import Path
from typing import Any

from experiments.bench import machine, plot
from experiments.bench.registry import PARTS
from experiments.bench.table import cells

HEAD = """\
# Performance

`make bench` measures the parts of Potstill, each against the least that does the same work: a loop by hand, numpy, a
bare service. Both sides take turns, so that both meet the same machine. "Ours" and "other" are medians of the
repetitions, the ratio is the median over the pairs (smallest to largest): above 1 ours is the slower or the larger.
"Processor" is the ratio of processor time, where both sides work in a process of their own; on a machine that others
keep busy it says more than the clock.

`make bench ARGS='--quick'` takes about four minutes on two cores, `ARGS='--only average'` measures one part,
`ARGS='--output bench.json'` keeps the figures, `ARGS='--page docs/performance.md'` rewrites the sections below that a
run has measured; those by hand stay. [Peers](../experiments/bench/README.md) are compared by the same rounds.
"""
MEASURED, BY_HAND = "Measured", ("What was tried, and what it gave", "What did not pay")
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_PART = re.compile(r"^### ([a-z_]+)$", re.MULTILINE)


def _pieces(pattern: re.Pattern[str], text: str) -> dict[str, str]:
    found = pattern.split(text)
    return {title: body.strip() + "\n" for title, body in zip(found[1::2], found[2::2], strict=True)}


def part_text(part: str, measured: dict[str, Any], said: dict[str, Any], quick: bool) -> str:
    """Return a part's section: what it is, on what it ran, the table."""
    how = "quick run" if quick else "run"
    rows = [["what", "unit", "ours", "other", "ratio", "processor", "against"], ["---"] * 7]
    rows += [cells(each) for each in measured["figures"]]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    took = f"A {how} of {measured['seconds']:.0f} seconds. {machine.sentence(said)}"
    return f"{PARTS[part][0].upper()}{PARTS[part][1:]}. {took}\n\n{table}\n"


def write(page: Path, found: dict[str, Any]) -> None:
    """Put what was measured into the page; other parts, and sections by hand, stay.

    Args:
        page: file to write; its plots go into `img/` beside it.
        found: what `--output` writes.
    """
    old = _pieces(_SECTION, page.read_text(encoding="utf-8")) if page.exists() else {}
    parts = _pieces(_PART, old.pop(MEASURED, ""))
    for part, measured in found["parts"].items():
        link = plot.draw(page.parent / "img" / f"bench-{part}.png", part, measured["figures"])
        text = part_text(part, measured, found["machine"], found["quick"])
        parts[part] = f"{text}\n![{part}: ours beside the other side]({link})\n"
    texts = [HEAD, f"## {MEASURED}\n"]
    texts += [f"### {part}\n\n{parts[part]}" for part in PARTS if part in parts]
    texts += [f"## {title}\n\n{old.pop(title, '')}" for title in BY_HAND]
    texts += [f"## {title}\n\n{body}" for title, body in old.items()]
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(texts), encoding="utf-8")
