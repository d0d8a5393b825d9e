"""Three interleaved arms of a Swiss roll: the data of FedBE's and Fed-ET's experiments."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def arms(labels: Array, rng: np.random.Generator) -> Array:
    """Return one point [N, 2] a label 0 to 2: t = 1.5 pi (1 + u), turned by a third of a circle an arm, noise 0.3, all
    divided by 10.
    """
    t = 1.5 * np.pi * (1 + rng.uniform(size=len(labels)))
    angle = t + 2 * np.pi * labels / 3
    points = np.stack([t * np.cos(angle), t * np.sin(angle)], axis=1)
    return np.asarray((points + 0.3 * rng.standard_normal(points.shape)) / 10)


def draw(number: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return points of all three arms with their labels."""
    labels = rng.integers(0, 3, number)
    return arms(labels, rng), labels
