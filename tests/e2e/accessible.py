"""axe-core over what a browser shows: every rule of WCAG 2.2 and of good practice."""

from pathlib import Path
from typing import Any

SOURCE = (Path(__file__).parent / "axe" / "axe.min.js").read_text(encoding="utf-8")
OPTIONS = '{ resultTypes: ["violations"], rules: { "target-size": { enabled: true } } }'
RUN = (
    f"async () => (await axe.run(document, {OPTIONS}))"
    + """
    .violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.html.slice(0, 160)}`))"""
)


def violations(page: Any) -> list[str]:
    """Return what violates which rule, a line each."""
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(SOURCE)
    found: list[str] = page.evaluate(RUN)
    return found
