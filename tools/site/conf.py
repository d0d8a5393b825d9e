"""How Sphinx makes the site of the same Markdown files that a forge shows: nothing is written for the site alone.

The sidebar is made of the tables of docs/README.md, a caption for each.
"""

import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from contract import __version__  # noqa: E402  # the checkout's own, wherever Sphinx is started

project = "Potstill"
copyright = "the Potstill authors"  # Sphinx's name
version = release = __version__

extensions = ["myst_parser"]
myst_heading_anchors = 4  # a forge's anchors: `devices.md#your-own-network`
root_doc = "README"
include_patterns = [
    "README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md",
    "docs/**.md", "examples/README.md", "examples/*/README.md", "experiments/bench/README.md",
]  # fmt: skip
exclude_patterns = ["**/node_modules", ".*", "site", "build", "tests", "service", "demo-report", "evidence-report"]
nitpicky = True

html_theme = "furo"
html_title = f"Potstill {version}"
html_copy_source = False
html_show_sourcelink = False
html_show_search_summary = False  # a browser fetches no page beside one that is a file
html_static_path = ["static"]
html_css_files = ["site.css"]
templates_path: list[str] = []
html_theme_options = {
    "navigation_with_keys": True,
    "light_css_variables": {"color-brand-primary": "#0b6b5d", "color-brand-content": "#0b6b5d"},
    "dark_css_variables": {"color-brand-primary": "#5cc8b4", "color-brand-content": "#5cc8b4"},
}

_TOPIC = re.compile(r"^\| ([\w ]+) \| \|\n\| --- \| --- \|\n((?:\|.*\n)+)", re.MULTILINE)
_LINK = re.compile(r"(\[[^\]\n]*\])\(([^)#\s:]+)\)")


def sidebar() -> str:
    """Return a toctree for each table of docs/README.md, and one for what is not in them."""
    text = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    found, named = [], {"README"}
    for caption, rows in _TOPIC.findall(text):
        pages = [
            page for target in re.findall(r"^\| \[[^\]]+\]\(([^)]+)\)", rows, re.MULTILINE) for page in _pages(target)
        ]
        found.append(_toctree(caption[0].upper() + caption[1:], pages))
        named |= set(pages)
    return "\n".join([*found, _toctree("More", ["docs/README", "SECURITY", "CHANGELOG", "experiments/bench/README"])])


def _pages(target: str) -> list[str]:
    """Return the pages that a link of docs/README.md leads to: itself, or all of a folder."""
    path = (ROOT / "docs" / target).resolve()
    files = sorted(path.glob("*.md")) if path.is_dir() else [path]
    if path.name == "README.md" and path.parent.name == "examples":
        files += sorted(path.parent.glob("*/README.md"))
    return [file.relative_to(ROOT).with_suffix("").as_posix() for file in files]


def _toctree(caption: str, pages: list[str]) -> str:
    return "\n".join(
        ["```{toctree}", ":hidden:", f":caption: {caption}", "", *(f"/{page}" for page in pages), "```", ""]
    )


def _of_folders(text: str, page: Path) -> str:
    """Let links to folders lead to their first page; where they have none, to nothing."""

    def led(found: re.Match[str]) -> str:
        folder = page.parent / found[2]
        if not folder.is_dir():
            return found[0]
        pages = [each for each in [folder / "README.md", *sorted(folder.glob("*.md"))] if each.is_file()]
        return f"{found[1]}({found[2]}/{pages[0].name})" if pages else found[1][1:-1]

    return _LINK.sub(led, text)


def _read(app: Any, name: str, source: list[str]) -> None:
    source[0] = _of_folders(source[0], ROOT / f"{name}.md")
    if name == root_doc:
        source[0] += "\n" + sidebar()


def setup(app: Any) -> None:
    """Have each page pass through here on its way in."""
    app.connect("source-read", _read)
