"""What a job is told is decided in one place, whoever has the files."""

import ast
from pathlib import Path
from typing import get_args

from worker.specs import JobSpec

ROOT = Path(__file__).parents[2]
PRODUCT = ("client_sdk", "contract", "experiments", "potstill", "service", "tools", "worker")
SPECS = {spec.__name__ for spec in get_args(JobSpec)}


def made_in(path: Path) -> set[str]:
    """Return the specifications of jobs that a file makes."""
    calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    names = (getattr(call.func, "id", getattr(call.func, "attr", "")) for call in calls)
    return SPECS & set(names)


def test_jobs_are_specified_by_one_builder() -> None:
    found = {
        str(path.relative_to(ROOT)): made
        for package in PRODUCT
        for path in (ROOT / package).rglob("*.py")
        if (made := made_in(path))
    }
    assert found == {"worker/building.py": SPECS}
