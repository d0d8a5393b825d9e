"""npm's packages that pages and their tests need, kept here: `python -m tools.vendor preact@11.2.0` renews one.

Each has a folder, with its files as npm has them, its licence, and `VERSION`: name and version, where it is from, and
the SHA-256 of every file, which a test holds against the files. Nothing is built or changed.
"""

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Package:
    """A package of npm: where its files lie here, and which they are, by their paths in the package."""

    folder: str
    files: tuple[str, ...]


PACKAGES = {
    "preact": Package("service/static/vendor/preact", ("dist/preact.mjs", "dist/preact.mjs.map", "LICENSE")),
    "uplot": Package("service/static/vendor/uplot", ("dist/uPlot.esm.js", "dist/uPlot.min.css", "LICENSE")),
    "uqr": Package("service/static/vendor/uqr", ("dist/index.mjs", "LICENSE")),
    "axe-core": Package("tests/e2e/axe", ("axe.min.js", "LICENSE")),
}


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def stated(folder: Path) -> dict[str, str]:
    """Return what VERSION says: a file's name -> its SHA-256."""
    lines = [line.split() for line in (folder / "VERSION").read_text(encoding="utf-8").splitlines()[2:]]
    return {name: value for value, name in lines}


def faults() -> list[str]:
    """Return a sentence for each file that is not as its VERSION says, or is there beside them."""
    said = []
    for name, package in PACKAGES.items():
        folder = ROOT / package.folder
        wanted = stated(folder)
        there = {path.name: digest(path) for path in folder.iterdir() if path.name != "VERSION"}
        odd = sorted(file for file in wanted.keys() | there.keys() if wanted.get(file) != there.get(file))
        said += [f"{package.folder}/{file} is not what VERSION says: `python -m tools.vendor {name}@…`" for file in odd]
    return said


def renew(name: str, version: str) -> None:
    """Put the files of a version into the package's folder; npm checks the archive against the registry's digest."""
    package = PACKAGES[name]
    folder = ROOT / package.folder
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(["npm", "pack", "--silent", f"{name}@{version}"], cwd=scratch, check=True)
        [archive] = Path(scratch).glob("*.tgz")
        with tarfile.open(archive) as packed:
            packed.extractall(scratch, filter="data")
        contents = {Path(file).name: (Path(scratch) / "package" / file).read_bytes() for file in package.files}
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for file, content in contents.items():
        (folder / file).write_bytes(content)
    lines = [f"{name} {version}", f"https://www.npmjs.com/package/{name}/v/{version}"]
    lines += [f"{digest(folder / file)}  {file}" for file in contents]
    (folder / "VERSION").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(arguments: list[str]) -> None:
    """Renew what is named; without a name, say what is not as it was fetched."""
    for argument in arguments:
        name, _, version = argument.partition("@")
        if name not in PACKAGES or not version:
            sys.exit(f"{argument}: give NAME@VERSION; the names are {', '.join(PACKAGES)}")
        renew(name, version)
    if found := faults():
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main(sys.argv[1:])
