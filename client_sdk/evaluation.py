"""How good the model that came is on this device's data: what is held back for it, and the figures that are sent."""

import math
from collections.abc import Mapping
from typing import Any

import torch

from client_sdk.data import Samples
from client_sdk.resources import Resources
from contract.bounds import VALUE
from contract.evaluation import Evaluation, held_back
from contract.seeds import derive_seed
from contract.wire.devices import TrainAssignment


def parts_of(assignment: TrainAssignment, resources: Resources) -> tuple[Samples, Samples | None]:
    """Return the samples to train on, and those to measure the model on in this round, if there are any.

    A set of the device's own for it (`evaluate_on`) goes first: then all samples are trained on. Nothing is held back
    from a training function or of a stream, which have the data as they were given.
    """
    plan, samples = assignment.evaluate, resources.samples
    if resources.held_out is not None or plan is None or type(samples) is not Samples:
        return samples, resources.held_out
    own = derive_seed(assignment.seed, "client", assignment.client_name)
    trained, held = split(samples, plan.share, own)
    return trained, held if plan.in_round(assignment.round.index) else None


def split(samples: Samples, share: float, seed: int) -> tuple[Samples, Samples | None]:
    """Return what a device trains on and what it holds back, None where one sample is all that there is.

    Args:
        samples: N of them.
        share: of them that is held back, see `contract.evaluation.held_back`.
        seed: the device's; the same one draws the same samples.
    """
    count = held_back(len(samples), share)
    if count < 1:
        return samples, None
    order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(derive_seed(seed, "held-back")))
    return samples.part(order[count:].sort().values), samples.part(order[:count].sort().values)


def figures(assignment: TrainAssignment, measured: Mapping[str, Any], count: int) -> Evaluation | None:
    """Return what is sent of what was measured, where the plan asks for it in this round.

    What is no number is left out, as of a model that has diverged, and what is larger than a figure may be is the
    largest.

    Args:
        measured: loss and metrics, see `client_sdk.measuring.measure`; empty where nothing was.
        count: of samples that it was measured on.
    """
    plan = assignment.evaluate
    if plan is None or not measured or not plan.in_round(assignment.round.index):
        return None
    told = {name: min(max(float(value), -VALUE), VALUE) for name, value in measured.items() if not math.isnan(value)}
    return Evaluation(num_samples=count, loss=told.pop("loss", None), metrics=told)
