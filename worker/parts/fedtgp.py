"""FedTGP, the server's part: how far class prototypes should be apart, and the prototypes' loss (Zhang et al. 2024).

Shapes: C classes, d features, P uploaded prototypes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional as F

from worker.parts.arrays import Float, option, stacked
from worker.parts.errors import PartError


@dataclass(frozen=True)
class Margin:
    """Distances between classes.

    Attributes:
        gap: distance from each class's mean to the nearest other one [C]; the smallest gap for classes nobody has.
        margin: min(max gap, threshold).
    """

    gap: Float
    margin: float


def margin(client_means: Sequence[Mapping[int, ArrayLike]], num_classes: int, threshold: float = 100.0) -> Margin:
    """Return the adaptive margin of the clients' class means (FedTGP eq. 8; the authors' code caps it at 100).

    Args:
        client_means: one mapping a client: class -> mean feature [d]. Clients' means of one class are averaged alike.
        num_classes: C.
        threshold: tau, the largest margin.

    Raises:
        PartError: no_participants, too_few_classes (fewer than two classes have a mean), out_of_range (a class outside
            0 to C - 1), schema_mismatch, non_finite, bad_option (threshold not positive).
    """
    option("the margin's threshold", threshold, open_low=True)
    if len(client_means) == 0:
        raise PartError("no_participants", "nobody sent class means")
    rows = [(label, mean) for means in client_means for label, mean in means.items()]
    if any(not 0 <= label < num_classes for label, _ in rows):
        raise PartError("out_of_range", f"a class is outside 0 to {num_classes - 1}")
    present = sorted({label for label, _ in rows})
    if len(present) < 2:
        raise PartError("too_few_classes", f"{len(present)} classes have a mean; a distance needs two")
    values, labels = stacked("class mean", [mean for _, mean in rows]), np.asarray([label for label, _ in rows])
    centres = np.stack([values[labels == label].mean(axis=0) for label in present])
    distances = np.stack([_norms(centres - centre) for centre in centres])
    np.fill_diagonal(distances, np.inf)
    nearest = distances.min(axis=1)
    gap = np.full(num_classes, nearest.min())
    gap[present] = nearest
    return Margin(gap, float(min(nearest.max(), threshold)))


def _norms(rows: Float) -> Float:
    peak = np.abs(rows).max(axis=-1, initial=0.0)
    safe = np.where(peak > 0, peak, 1.0)
    return np.asarray(safe * np.sqrt(((rows.reshape(len(rows), -1) / safe[:, None]) ** 2).sum(axis=1)))


class Prototypes(nn.Module):
    """Trainable global prototypes: class embedding -> Linear -> ReLU -> Linear (FedTGP section 3.3).

    Args:
        num_classes: C.
        features: d.
        hidden: width; the features' by default.
    """

    def __init__(self, num_classes: int, features: int, hidden: int | None = None):
        super().__init__()
        width = hidden or features
        self.embedding = nn.Embedding(num_classes, features)
        self.net = nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, features))

    def forward(self) -> Tensor:
        """Return the prototypes [C, d]."""
        result: Tensor = self.net(self.embedding.weight)
        return result


def contrast(prototypes: Tensor, means: Tensor, labels: Tensor, margin: float) -> Tensor:
    """Return the mean cross-entropy of -(distance + margin on the true class), a scalar (FedTGP eq. 7).

    Args:
        prototypes: [C, d].
        means: uploaded class means [P, d].
        labels: their classes [P], int64.
        margin: delta.

    Raises:
        PartError: schema_mismatch.
    """
    if prototypes.shape[1:] != means.shape[1:] or labels.shape != means.shape[:1]:
        raise PartError("schema_mismatch", f"prototypes {list(prototypes.shape)} and means {list(means.shape)} differ")
    distances = torch.cdist(means, prototypes)
    return F.cross_entropy(-(distances + margin * F.one_hot(labels, len(prototypes))), labels)
