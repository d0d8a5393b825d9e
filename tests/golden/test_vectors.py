"""Golden vectors: computed in float64 by an implementation that is not the product's."""

import importlib.util
import json
import math
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
VECTORS = sorted((HERE / "vectors").glob("*.json"))


def _load_adapter() -> Any:
    spec = importlib.util.spec_from_file_location("golden_adapter", HERE / "adapter.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


adapter = _load_adapter()


def read(path: Path) -> dict[str, Any]:
    vector: dict[str, Any] = json.loads(path.read_text())
    return vector


def numbers(value: Any) -> Any:
    """Turn the strings that stand for non-finite numbers into numbers."""
    return float(value) if value in ("nan", "inf", "-inf") else value


def assert_close(got: Any, expected: Any, rtol: float, atol: float, where: str) -> None:
    if isinstance(expected, dict):
        assert set(got) >= set(expected), where
        for key, value in expected.items():
            assert_close(got[key], value, rtol, atol, f"{where}.{key}")
    elif isinstance(expected, list):
        assert len(got) == len(expected), where
        for index, (mine, theirs) in enumerate(zip(got, expected, strict=True)):
            assert_close(mine, theirs, rtol, atol, f"{where}[{index}]")
    elif isinstance(expected, float):
        assert math.isclose(got, expected, rel_tol=0, abs_tol=atol + rtol * abs(expected)), f"{where}: {got}"
    else:
        expected = numbers(expected)
        same = got == expected or (isinstance(expected, float) and math.isnan(expected) and math.isnan(got))
        assert same and isinstance(got, bool) == isinstance(expected, bool), f"{where}: {got} != {expected}"


@pytest.mark.parametrize(
    "path", [path for path in VECTORS if read(path)["rule"] in adapter.built()], ids=lambda path: path.stem
)
def test_vector(path: Path) -> None:
    case = read(path)
    got = adapter.evaluate(case["rule"], case["inputs"])
    assert_close(got, case["expected"], case["rtol"], case["atol"], case["id"])


def test_every_rule_is_built_or_named_as_not_built() -> None:
    rules = {read(path)["rule"] for path in VECTORS}
    assert adapter.built() | adapter.NOT_BUILT.keys() == rules
    assert not adapter.built() & adapter.NOT_BUILT.keys()


def test_vectors_are_all_here() -> None:
    assert len(VECTORS) == 114


@pytest.mark.parametrize(
    ("rule", "inputs", "code"),
    [
        ("weighted_average", {"states": [{"t": [1.0]}], "n": [0]}, "no_positive_weight"),
        ("weighted_average", {"states": [{"t": [1.0]}], "n": [-1]}, "bad_weight"),
        ("weighted_average", {"states": [{"t": ["nan"]}], "n": [1]}, "non_finite"),
        ("weighted_average", {"states": [{"t": [1.0]}, {"u": [1.0]}], "n": [1, 1]}, "schema_mismatch"),
        ("weighted_average", {"states": [{"t": [1.0]}], "n": [1], "int_policy": "vote"}, "bad_option"),
        ("weights_fedgo", {"n": [1], "link": "prob", "D": [[1.5]]}, "out_of_range"),
        ("weights_fedgo", {"n": [1], "link": "cube", "a": [[1.5]]}, "bad_option"),
        ("weights_fedgo", {"n": [1], "link": "sigmoid", "a": [["inf"]]}, "non_finite"),
        ("weights_fedgo", {"n": [0, 0], "link": "sigmoid", "a": [[0.0], [0.0]]}, "no_positive_weight"),
        ("weights_uniform", {"K": 0, "B": 2}, "no_participants"),
        ("feddf_avglogits", {"logits": []}, "no_participants"),
        ("weights_variance", {"logits": []}, "no_participants"),
        ("weights_fedgo", {"n": [], "link": "sigmoid", "a": []}, "no_participants"),
        ("weighted_average", {"states": [], "n": []}, "no_positive_weight"),
        ("cosine_lr", {"lr0": 0.1, "total": 0, "steps": [0]}, "no_steps"),
        ("fedprox_term", {"w": [1.0], "w0": [0.0], "grad": [0.0], "mu": -1.0}, "bad_option"),
    ],
)
def test_refusals_have_stable_codes(rule: str, inputs: dict[str, Any], code: str) -> None:
    assert adapter.evaluate(rule, inputs) == {"error": code}
