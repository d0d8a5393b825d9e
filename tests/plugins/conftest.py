"""The package of docs/extending.md, installed as a real one is: its files and metadata in a folder on the path."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.foreign import forget_foreign

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "extending.md"
_FILE = re.compile(r"```python\n# (acme_rules/\w+\.py)\n(.*?)```", re.DOTALL)
_TABLE = re.compile(r'```toml\n\[project\.entry-points\."potstill\.choices"\]\n(.*?)```', re.DOTALL)


def files() -> dict[str, str]:
    """Return the page's package: path -> text."""
    return dict(_FILE.findall(PAGE.read_text(encoding="utf-8")))


def points() -> str:
    """Return the page's entry points as an installer writes them."""
    found = _TABLE.search(PAGE.read_text(encoding="utf-8"))
    assert found is not None
    return found[1].replace('"', "")


class Packages:
    """Installs and removes packages below a folder, and lets potstill look at them again."""

    def __init__(self, folder: Path):
        self.folder = folder

    def install(self, name: str, files: dict[str, str], points: str, version: str = "1.0") -> None:
        """Write a package with its metadata."""
        for path, text in files.items():
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_text(text)
        info = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[potstill.choices]\n{points}")
        self.look()

    def acme(self, version: str = "1.0") -> None:
        """Install the page's package."""
        self.install("acme-rules", files(), points(), version)

    def remove(self) -> None:
        """Uninstall all."""
        for info in self.folder.glob("*.dist-info"):
            for each in info.iterdir():
                each.unlink()
            info.rmdir()
        self.look()

    def look(self) -> None:
        """Be like a process that has just begun."""
        forget_foreign()


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Packages]:
    """An empty folder of packages on the path."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{ROOT}")  # of processes that are started
    made = Packages(folder)
    made.look()
    yield made
    made.remove()


@pytest.fixture
def acme(packages: Packages) -> Packages:
    """The page's package, installed."""
    packages.acme()
    return packages


Rows = Callable[..., str]


@pytest.fixture
def rows() -> Rows:
    """Return a function that gives the page's rows with something in it replaced."""

    def changed(old: str = "", new: str = "") -> str:
        text = files()["acme_rules/rows.py"]
        assert old in text
        return text.replace(old, new)

    return changed
