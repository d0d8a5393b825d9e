"""FedTGP's server part: margins between classes, trained prototypes."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.reference import fusing
from worker.parts import fedtgp
from worker.parts.errors import PartError

SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS, st.integers(2, 5))
def test_margin_is_the_slow_one_and_scales_with_the_features(seed: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    clients: list[dict[int, Any]] = [
        {label: rng.normal(size=3) for label in range(classes) if label < 2 or rng.random() < 0.5} for _ in "abc"
    ]
    gaps, expected = fusing.margin(clients, classes, 2.0)
    made = fedtgp.margin(clients, classes, 2.0)
    np.testing.assert_allclose(made.gap, gaps)
    assert made.margin == pytest.approx(expected)
    scaled = fedtgp.margin(
        [{label: mean * 1e200 for label, mean in means.items()} for means in clients], classes, 1e300
    )
    np.testing.assert_allclose(scaled.gap, np.multiply(gaps, 1e200))


def test_prototypes_learn_to_lie_at_the_means() -> None:
    torch.manual_seed(0)
    means, labels = torch.tensor([[4.0, 0.0], [0.0, 4.0], [-4.0, 0.0]]), torch.arange(3)
    network = fedtgp.Prototypes(3, 2)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    first = fedtgp.contrast(network(), means, labels, 1.0).item()
    for _ in range(200):
        optimizer.zero_grad()
        fedtgp.contrast(network(), means, labels, 1.0).backward()
        optimizer.step()
    assert fedtgp.contrast(network(), means, labels, 1.0).item() < first / 2
    assert (torch.cdist(means, network().detach()).argmin(dim=1) == labels).all()


def test_contrast_by_hand() -> None:
    """Distances 0 and 5 to the two prototypes, margin 5: the odds are even."""
    prototypes = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    loss = fedtgp.contrast(prototypes, torch.zeros(1, 2), torch.tensor([0]), 5.0)
    assert float(loss) == pytest.approx(np.log(2))


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: fedtgp.margin([], 2), "no_participants"),
        (lambda: fedtgp.margin([{0: [1.0]}], 2), "too_few_classes"),
        (lambda: fedtgp.margin([{0: [1.0], 2: [1.0]}], 2), "out_of_range"),
        (lambda: fedtgp.margin([{0: [1.0], 1: [1.0, 2.0]}], 2), "schema_mismatch"),
        (lambda: fedtgp.margin([{0: [1.0], 1: [np.nan]}], 2), "non_finite"),
        (lambda: fedtgp.margin([{0: [1.0], 1: [2.0]}], 2, 0.0), "bad_option"),
        (lambda: fedtgp.contrast(torch.zeros(2, 3), torch.zeros(1, 2), torch.zeros(1).long(), 1.0), "schema_mismatch"),
    ],
)
def test_refusals(call: Any, code: str) -> None:
    with pytest.raises(PartError) as caught:
        call()
    assert caught.value.code == code
