"""The distribution carries every package; the Makefile has the targets that people and machines call."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from setuptools import find_namespace_packages

from .requirements import closure, made

ROOT = Path(__file__).parents[2]
PACKAGES = ("contract", "client_sdk", "service", "worker", "potstill", "migrations")


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_folder_with_code_is_in_the_distribution(project: dict[str, Any]) -> None:
    listed = set(find_namespace_packages(str(ROOT), **project["tool"]["setuptools"]["packages"]["find"]))
    code = {
        ".".join(file.parent.relative_to(ROOT).parts) for package in PACKAGES for file in (ROOT / package).rglob("*.py")
    }
    assert code <= listed
    assert {name.split(".")[0] for name in listed} == set(PACKAGES), "experiments and tools stay outside"


def test_package_data_is_there(project: dict[str, Any]) -> None:
    for package, patterns in project["tool"]["setuptools"]["package-data"].items():
        for pattern in patterns if package != "*" else []:
            assert any((ROOT / package).glob(pattern)), f"{package}: nothing matches {pattern}"


def test_requirements_carry_their_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    block = text.split("dependencies = [", 1)[1].split("\n]", 1)[0]
    rows = [line for line in block.splitlines() if line.strip()]
    assert len(rows) >= 7
    assert all("#" in row for row in rows)


def test_every_requirement_is_pinned(project: dict[str, Any]) -> None:
    pinned = {
        re.split("==", line)[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    wanted = list(project["project"]["dependencies"])
    for extra in project["project"]["optional-dependencies"].values():
        wanted += [item for item in extra if not item.startswith("potstill")]
    names = {re.split(r"[\[<>=]", item)[0].lower().replace("_", "-") for item in wanted}
    assert names <= pinned


def test_the_base_brings_no_torch_and_the_device_no_server(project: dict[str, Any]) -> None:
    base = " ".join(project["project"]["dependencies"])
    client = " ".join(project["project"]["optional-dependencies"]["client"])
    assert "torch" not in base
    assert not re.search("fastapi|sqlalchemy|celery", base + client)


def test_the_demo_installs_what_it_needs_and_the_tests_add_theirs(project: dict[str, Any], tmp_path: Path) -> None:
    [demo] = made("demo", tmp_path / "venv")
    [tests] = made("test", tmp_path / "venv")
    demo_brings, tests_bring = closure(set(demo.split(","))), closure(set(tests.split(",")))
    of_tests = {re.split(r"[\[<>=]", item)[0] for item in project["project"]["optional-dependencies"]["dev"]}
    of_tests -= {"pyyaml", "setuptools"}  # uvicorn reads its log configuration with the one, torch brings the other
    assert {"torch", "scikit-learn", "fastapi", "celery"} <= demo_brings
    assert not demo_brings & (of_tests | {"opacus", "boto3", "psycopg", "redis"})
    assert demo_brings | of_tests | {"opacus", "boto3", "psycopg", "redis"} <= tests_bring


def test_make_installs_once(tmp_path: Path) -> None:
    (tmp_path / ".installed-demo").touch()
    assert made("demo", tmp_path) == []
    assert len(made("test", tmp_path)) == 1
    (tmp_path / ".installed-tests").touch()
    assert made("test", tmp_path) == made("demo", tmp_path) == []


@pytest.mark.parametrize("target", ["demo", "test", "fmt", "lint", "types", "bench", "evidence", "migrate", "clean"])
def test_make_lists_its_targets(target: str) -> None:
    listing = subprocess.run(["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.search(rf"^\s*make {target}\s+\S", listing.stdout, re.MULTILINE)


def test_ci_runs_make_test() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert "make test" in script.read_text()


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("potstill.cli", ["torch", "fastapi", "sqlalchemy", "celery", "worker"]),
        ("potstill.supervisor", ["torch", "fastapi", "sqlalchemy", "celery", "worker", "pydantic"]),
        (
            "potstill.standing",
            ["typer", "rich", "numpy", "sqlalchemy", "pydantic", "httpx", "http.client", "ssl", "sqlite3"],
        ),
        ("potstill.demo.run", ["torch", "sklearn", "matplotlib", "celery", "worker"]),
    ],
)
def test_start_is_light(module: str, heavy: list[str]) -> None:
    program = f"import sys, {module}; print([m for m in {heavy!r} if m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"
