"""Every case has a test that exists."""

import ast

import pytest

from tests.cases.index import CASES
from tools.deployment import ROOT


@pytest.mark.parametrize("case", CASES)
def test_a_case_has_its_tests(case: str) -> None:
    _, tests = CASES[case]
    assert tests
    for test in tests:
        path, _, name = test.partition("::")
        tree = ast.parse((ROOT / path).read_text())
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert name in functions, f"{case}: {test} is gone"


def test_there_are_thirty_nine() -> None:
    assert len(CASES) == 39
