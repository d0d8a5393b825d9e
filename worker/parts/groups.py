"""Means within groups: FedSDD's K models, Fed-ET's plain mean per architecture; who has nobody stays as it was.

The draw of the groups is in `contract.grouping`: the service makes it.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from worker.parts.arrays import Float, finite, floats, stacked
from worker.parts.errors import PartError
from worker.parts.fuse import shares
from worker.parts.posterior import weighted_mean


def group_means(
    models: Sequence[ArrayLike], num_samples: Sequence[float], groups: Sequence[int], previous: Sequence[ArrayLike]
) -> list[Float]:
    """Return w_{t,k}, the n_i average of each group k (FedSDD eq. 2).

    A group without clients, or whose clients all have 0 samples, keeps the model it sent out.

    Args:
        models: w_i, one array [...] a client, all of one shape.
        num_samples: n_i; a client with 0 is not looked at.
        groups: the group of each client, 0 to K - 1.
        previous: the K models [...] that were sent out, of the same shape.

    Raises:
        PartError: schema_mismatch, out_of_range (no such group), bad_weight, non_finite, bad_option (K = 0).
    """
    if not len(models) == len(num_samples) == len(groups):
        raise PartError("schema_mismatch", "there must be one model, number of samples and group a client")
    if len(previous) == 0:
        raise PartError("bad_option", "there is no group; at least 1 is needed")
    if any(not 0 <= group < len(previous) for group in groups):
        raise PartError("out_of_range", f"a client is in a group outside 0 to {len(previous) - 1}")
    if any(not (np.isfinite(count) and count >= 0) for count in num_samples):
        raise PartError("bad_weight", "a number of samples is negative or not finite")
    result = []
    for index, old in enumerate(previous):
        kept = [i for i, group in enumerate(groups) if group == index and num_samples[i] > 0]
        before = floats(f"model of group {index}", old)
        if not kept:
            result.append(finite(f"model of group {index}", before).copy())
            continue
        values = stacked("model", [models[i] for i in kept])
        if values.shape[1:] != before.shape:
            raise PartError("schema_mismatch", f"group {index}: models {values.shape[1:]}, sent was {before.shape}")
        result.append(finite("mean", weighted_mean(np.asarray(shares([num_samples[i] for i in kept])), values)))
    return result


def plain_mean(models: Sequence[ArrayLike]) -> Float:
    """Return the unweighted mean [...] of arrays [...] (Fed-ET step 1, Alg. 1 line 9: h_bar over all architectures).

    Raises:
        PartError: no_participants, schema_mismatch, non_finite.
    """
    values = stacked("model", models)
    return finite("mean", weighted_mean(np.full(len(values), 1.0 / len(values)), values))


def small_average(
    models: Sequence[ArrayLike], model_ids: Sequence[str], previous: Mapping[str, ArrayLike]
) -> dict[str, Float]:
    """Return the plain mean per architecture; one without a participant is unchanged (Fed-ET eq. 12).

    Clients are drawn in proportion to n_k, so the mean is not weighted once more.

    Args:
        models: one array [...] a participant, of the shape of its architecture's model.
        model_ids: the architecture of each.
        previous: the models [...] that were sent out, by architecture.

    Raises:
        PartError: schema_mismatch, out_of_range (an id that `previous` does not have), non_finite.
    """
    if len(models) != len(model_ids):
        raise PartError("schema_mismatch", f"{len(models)} models but {len(model_ids)} ids")
    unknown = sorted(set(model_ids) - set(previous))
    if unknown:
        raise PartError("out_of_range", f"model id {unknown[0]!r} is not one of {', '.join(sorted(previous))}")
    result = {}
    for name, old in previous.items():
        mine = [model for model, owner in zip(models, model_ids, strict=True) if owner == name]
        before = floats(f"model {name}", old)
        result[name] = plain_mean(mine) if mine else finite(f"model {name}", before).copy()
        if result[name].shape != before.shape:
            raise PartError("schema_mismatch", f"model {name}: {result[name].shape}, sent was {before.shape}")
    return result
