"""Tables of the docs that are made from the code are what the code makes now."""

from pathlib import Path

import pytest

from tools import pages


@pytest.mark.parametrize("path", sorted((pages.ROOT / "docs").glob("*.md")), ids=lambda path: path.name)
def test_a_page_is_as_it_would_be_made_now(path: Path) -> None:
    text = path.read_text()
    assert pages.rewritten(text) == text, "make pages"


def test_a_stale_table_is_made_anew() -> None:
    stale = "before\n<!-- made: presets -->\n| old |\n<!-- end -->\nafter\n"
    assert "| `fedgo` |" in pages.rewritten(stale)
    assert "| old |" not in pages.rewritten(stale)
    with pytest.raises(KeyError):
        pages.rewritten("<!-- made: nothing -->\n<!-- end -->\n")
