"""FedTGP on the device: features near the server's prototypes, and the class means for it (Zhang et al. 2024)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from client_sdk.objectives.checks import finite, option
from contract.errors import RuleError


def pull(features: Tensor, labels: Tensor, prototypes: Tensor, weight: float = 0.001) -> Tensor:
    """Return weight * MSE(feature, prototype of its class), a scalar, to be added to the cross-entropy.

    Args:
        features: [B, d].
        labels: [B], int64.
        prototypes: the server's [C, d]; get no gradient.
        weight: lambda; FedGO E.2 takes 0.001, the authors' code 1.

    Raises:
        RuleError: schema_mismatch, out_of_range (a label without a prototype), bad_option.
    """
    option("weight", weight)
    if features.shape[1:] != prototypes.shape[1:] or labels.shape != features.shape[:1]:
        raise RuleError(
            "schema_mismatch", f"features {list(features.shape)}, prototypes {list(prototypes.shape)}: one size d"
        )
    if len(labels) and not (int(labels.min()) >= 0 and int(labels.max()) < len(prototypes)):
        raise RuleError("out_of_range", f"a label is outside 0 to {len(prototypes) - 1}")
    return weight * (features - prototypes.detach()[labels]).square().mean()


@dataclass(frozen=True)
class ClassMeans:
    """Mean feature of each class [C, d], zeros for a class without samples, and the number of samples [C], int64."""

    means: Tensor
    counts: Tensor


def class_means(features: Tensor, labels: Tensor, num_classes: int) -> ClassMeans:
    """Return the class means of features [B, d], summed in float64 and returned in the features' dtype.

    Raises:
        RuleError: schema_mismatch, out_of_range (a label outside 0 to C - 1), non_finite.
    """
    if features.ndim != 2 or labels.shape != features.shape[:1]:
        raise RuleError("schema_mismatch", f"features {list(features.shape)} and labels {list(labels.shape)}")
    if len(labels) and not (int(labels.min()) >= 0 and int(labels.max()) < num_classes):
        raise RuleError("out_of_range", f"a label is outside 0 to {num_classes - 1}")
    finite("features", features)
    counts = torch.bincount(labels, minlength=num_classes)
    sums = torch.zeros(num_classes, features.shape[1], dtype=torch.float64, device=features.device)
    sums.index_add_(0, labels, features.detach().double())
    return ClassMeans((sums / counts.clamp(min=1)[:, None]).to(features.dtype), counts)
