"""G: what an ensemble must not do: let the loudest win unasked, or divide by a discriminator that is too sure."""

from typing import Any

import numpy as np
import pytest

from contract.recipes import parts
from tests.teachers import target, weights
from worker.parts import combine

LOGITS = np.array([[[10.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]]])
"""Two teachers, one sample, three classes [2, 1, 3]."""


def test_g01_mean_of_logits_and_mean_of_probabilities() -> None:
    """Each rule by its name, and they differ: .982 .011 .007 against .606 .288 .106."""
    by_logits = target(parts.CombineLogits(), LOGITS)
    by_probabilities = target(parts.CombineProbs(), LOGITS)
    assert by_logits[0] == pytest.approx([0.982, 0.011, 0.007], abs=5e-4)
    assert by_probabilities[0] == pytest.approx([0.606, 0.288, 0.106], abs=5e-4)


@pytest.mark.parametrize("link", ["double_sigmoid", "sigmoid", "prob"])
def test_g07_saturated_discriminators(link: Any) -> None:
    """A discriminator that is certain, or all of them, gives weights that are finite, not negative and sum to one."""
    odds = parts.WeighOdds(link=link)
    certain, unsure = (1.0, 0.5) if link == "prob" else (1e6, 0.0)
    for scores in ([certain, unsure], [certain, certain], [-certain if link != "prob" else 0.0, unsure]):
        shares = weights(odds, [10, 10], scores=np.array(scores, np.float32)[:, None])
        assert np.isfinite(shares).all()
        assert (shares >= 0).all()
        assert shares.sum(axis=0) == pytest.approx(1)
    alike = weights(odds, [10, 10], scores=np.full((2, 4), certain, np.float32))
    assert alike == pytest.approx(np.full((2, 4), 0.5))


def test_g07_the_least_number_of_teachers_is_in_the_record() -> None:
    """One teacher that takes all the weight is seen as one."""
    assert combine.effective_teachers(np.array([[1.0, 0.5], [0.0, 0.5]])) == pytest.approx([1.0, 2.0])
    assert parts.WeighOdds().link == "double_sigmoid"
