"""What an installation of this project brings: the Makefile, pyproject.toml and what is installed say it."""

import re
import subprocess
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def made(target: str, venv: Path) -> list[str]:
    """What `make` would install for a target from nothing: the extras of each call of pip."""
    planned = subprocess.run(
        ["make", "-n", target, f"VENV={venv}"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return re.findall(r"pip install .*'\.\[(.*)\]'", planned.stdout)


def project(folder: Path = ROOT) -> dict[str, Any]:
    """Return the table `project` of a folder's pyproject.toml."""
    found: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return found


def closure(extras: set[str], folder: Path = ROOT) -> set[str]:
    """Return the distributions that come with the one of a folder and its extras, itself not counted."""
    about = project(folder)
    own: dict[str, list[str]] = about["optional-dependencies"]
    wanted = [Requirement(text) for text in about["dependencies"]]
    wanted += [Requirement(text) for extra in extras for text in own[extra]]
    found: set[str] = set()
    seen: set[tuple[str, frozenset[str]]] = set()
    while wanted:
        requirement = wanted.pop()
        name, asked = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if (name, asked) in seen:
            continue
        seen.add((name, asked))
        if name == about["name"]:
            wanted += [Requirement(text) for extra in asked for text in own[extra]]
            continue
        found.add(name)
        wanted += [inner for inner in _required(name) if _applies(inner, asked)]
    return found


def _required(name: str) -> list[Requirement]:
    try:
        return [Requirement(text) for text in requires(name) or []]
    except PackageNotFoundError:  # for another system, or a torch that brings no CUDA
        return []


def _applies(requirement: Requirement, extras: frozenset[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras | {""})


def foreign_modules(allowed: set[str]) -> set[str]:
    """Return the top-level modules of this environment that come with none of the allowed distributions."""
    return {
        module
        for module, owners in packages_distributions().items()
        if not {canonicalize_name(owner) for owner in owners} & (allowed | {"potstill"})
    }


def without(modules: set[str], folder: Path) -> Path:
    """Write a sitecustomize into a folder that makes these modules missing for every Python that has it on its path."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        f"from importlib.machinery import PathFinder\n\nMISSING = {sorted(modules)!r}\n"
        "find = PathFinder.find_spec\n\n\n"
        "def find_spec(name, path=None, target=None):\n"
        "    return None if name.partition('.')[0] in MISSING else find(name, path, target)\n\n\n"
        "PathFinder.find_spec = find_spec\n"
    )
    return folder
