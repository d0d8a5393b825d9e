"""Each promise of the threat model names a test, and the test is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "security.md").read_text()
ROWS = re.findall(r"^\| (.+?) \| (`tests/.+?) \|$", TEXT, re.MULTILINE)


def test_the_page_promises_something() -> None:
    assert len(ROWS) >= 25
    promised = TEXT.partition("## What is promised")[2].partition("\n## ")[0]
    rows = [line for line in promised.splitlines() if line.startswith("| ")][2:]
    assert len([line for line in promised.splitlines() if line.startswith("| ")]) - 2 == len(ROWS), rows


@pytest.mark.parametrize(("promise", "shown"), ROWS, ids=[row[0][:60] for row in ROWS])
def test_a_promise_has_its_test(promise: str, shown: str) -> None:
    names = re.findall(r"`([^`]+)`", shown)
    assert names
    for name in names:
        path, _, function = name.partition("::")
        tree = ast.parse((ROOT / path).read_text())
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert function in defined, f"{promise}: {name} is not there"
