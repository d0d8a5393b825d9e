"""The gate's rule: each model alone, against the one that it would replace."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.wire.plans import Gate
from service.domain.gate import best, rejected


@pytest.mark.parametrize(
    ("before", "after", "max_drop", "passes"),
    [
        (0.8, 0.8, 0.0, True),
        (0.8, 0.79, 0.0, False),
        (0.8, 0.75, 0.05, True),  # by as much as it may: 0.8 - 0.05 is a little more than 0.75 in floats
        (0.8, 0.74, 0.05, False),
        (0.0, 0.0, 0.0, True),
        (1.0, 0.0, 1.0, True),
        (0.5, 0.9, 0.0, True),
    ],
)
def test_who_passes(before: float, after: float, max_drop: float, passes: bool) -> None:
    found = rejected(Gate(max_drop=max_drop), {"main": {"before": before, "after": after}})
    assert (found == {}) is passes
    if not passes:
        assert found["main"].startswith("validation accuracy of 'main' fell from 0.8000 to")


shares = st.fractions(0, 1, max_denominator=200).map(float)


@given(figures=st.dictionaries(st.text("abc", min_size=1), st.tuples(shares, shares), max_size=5), drop=shares)
def test_models_are_judged_alone_and_none_for_growing(figures: dict[str, tuple[float, float]], drop: float) -> None:
    given_ = {name: {"before": before, "after": after} for name, (before, after) in figures.items()}
    found = rejected(Gate(max_drop=drop), given_)
    alone = {name for name, figure in given_.items() if rejected(Gate(max_drop=drop), {name: figure})}
    assert set(found) == alone
    assert not any(after >= before for name, (before, after) in figures.items() if name in found)


@pytest.mark.parametrize(
    ("measured", "current", "expected"),
    [
        ({1: 0.5, 2: 0.9, 3: 0.7}, 3, 2),
        ({1: 0.9, 2: 0.9, 3: 0.7}, 3, 2),  # of equal ones the newest
        ({1: 0.5, 2: 0.9}, 2, None),
        ({1: 0.9, 2: 0.9}, 1, None),  # no better than what is there
        ({1: 0.5}, 2, 1),  # the current one was never measured
        ({}, 2, None),
    ],
)
def test_which_model_comes_back(measured: dict[int, float], current: int, expected: int | None) -> None:
    assert best(measured, current) == expected
