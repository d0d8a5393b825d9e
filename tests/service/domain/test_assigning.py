"""Who trains which prototype."""

from typing import Any

import pytest

from contract.prototypes import meets
from contract.wire.federations import Prototype
from service.domain.assigning import assign
from service.domain.errors import DomainError

LARGE = Prototype(name="large", architecture="mlp", requires={"memory_mb": 1000, "npu": True})
SMALL = Prototype(name="small", architecture="mlp", requires={"memory_mb": 100})


@pytest.mark.parametrize(
    ("requires", "has", "expected"),
    [
        ({}, {}, True),
        ({"a": 2}, {"a": 2}, True),
        ({"a": 2}, {"a": 2.5}, True),
        ({"a": 2}, {"a": 1}, False),
        ({"a": 2}, {}, False),
        ({"a": 1}, {"a": True}, False),
        ({"a": True}, {"a": 1}, False),
        ({"a": True}, {"a": True}, True),
        ({"os": "linux"}, {"os": "linux"}, True),
        ({"os": "linux"}, {"os": "mac"}, False),
    ],
)
def test_numbers_at_least_and_everything_else_equal(requires: Any, has: Any, expected: bool) -> None:
    assert meets(requires, has) is expected


def test_the_first_that_fits_or_the_one_that_is_wished() -> None:
    strong = {"memory_mb": 4000, "npu": True}
    assert assign([LARGE, SMALL], strong, None) == "large"
    assert assign([LARGE, SMALL], {"memory_mb": 200}, None) == "small"
    assert assign([LARGE, SMALL], strong, "small") == "small"


@pytest.mark.parametrize(
    ("has", "wish", "field"),
    [({}, None, "capabilities"), ({"memory_mb": 200}, "large", "prototype"), ({"memory_mb": 200}, "huge", "prototype")],
)
def test_what_cannot_be_is_refused_by_name(has: Any, wish: str | None, field: str) -> None:
    with pytest.raises(DomainError) as caught:
        assign([LARGE, SMALL], has, wish)
    assert caught.value.members["field"] == field
