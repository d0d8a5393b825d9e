"""Who trained which model."""

import pytest

from worker.parts.errors import PartError
from worker.parts.groups import by_model


def test_each_model_has_its_updates_in_order_and_the_untrained_is_not_there() -> None:
    owners = [("a", "small"), ("b", "large"), ("c", "small")]
    assert by_model(owners, ["small", "medium", "large"]) == {"small": [0, 2], "large": [1]}
    assert by_model([], ["small"]) == {}


def test_a_model_that_is_not_of_the_round_is_refused_by_name() -> None:
    with pytest.raises(PartError, match="update of 'b': no prototype 'tiny' here") as caught:
        by_model([("update of 'a'", "small"), ("update of 'b'", "tiny")], ["small"])
    assert caught.value.code == "out_of_range"
