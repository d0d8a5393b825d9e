"""The one door from golden vectors to the product: rules by name to its functions, no arithmetic of its own."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import torch
from pydantic import ValidationError
from torch import nn

from client_sdk.objectives.fedprox import fedprox
from contract.local import FedProxObjective
from worker.parts import combine, fuse, objectives, schedules, weigh
from worker.parts.errors import PartError

Inputs = dict[str, Any]
Rule = Callable[[Inputs], dict[str, Any]]

NOT_BUILT: dict[str, str] = {
    "binarize": "low-precision clients (FedDF 4.3)",
    "dirichlet_combination": "FedBE",
    "drop_worst": "FedDF's filter of teachers",
    "ds_fl_era": "DS-FL",
    "fedavgm_step": "FedAvgM",
    "feddisco_weights": "FedDisco",
    "fedet_representation": "Fed-ET",
    "fedet_small_average": "Fed-ET",
    "fedet_targets": "Fed-ET",
    "fedsdd_aggregate": "FedSDD",
    "fedsdd_ensemble": "FedSDD",
    "fedsdd_group_sizes": "FedSDD",
    "fedtgp_margin": "FedTGP",
    "feduv_reg": "FedUV",
    "gaussian_posterior": "FedBE",
    "gaussian_sample": "FedBE",
    "moon_loss": "MOON",
    "scaffold_client": "SCAFFOLD",
    "scaffold_server": "SCAFFOLD",
    "swa_average": "FedBE",
    "swa_schedule": "FedBE",
}
"""Rules of methods that are not in the product yet -> the method."""

_RULES: dict[str, Rule] = {}


def rule(function: Rule) -> Rule:
    """Register a function under its own name."""
    _RULES[function.__name__] = function
    return function


def built() -> frozenset[str]:
    """Return the names of the rules that `evaluate` knows."""
    return frozenset(_RULES)


def evaluate(name: str, inputs: Inputs) -> dict[str, Any]:
    """Run one rule of the product; a domain error becomes {"error": code}.

    Raises:
        KeyError: the rule is not built; see NOT_BUILT.
    """
    try:
        return {key: plain(value) for key, value in _RULES[name](inputs).items()}
    except PartError as error:
        return {"error": error.code}
    except ValidationError:
        return {"error": "bad_option"}


def plain(value: Any) -> Any:
    """Turn arrays and tensors into lists and Python scalars."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, torch.Tensor):
        return value.detach().tolist()
    if isinstance(value, np.ndarray):
        wide = value.astype(np.float64) if value.dtype == ml_dtypes.bfloat16 else value
        return wide.tolist()
    return value.item() if isinstance(value, np.generic) else value


def floats(value: Any) -> Any:
    """Turn nested lists, in which non-finite numbers are strings, into float64."""
    if isinstance(value, list):
        return np.asarray([floats(item) for item in value], dtype=np.float64)
    return float(value)


def tensor(value: Any) -> torch.Tensor:
    """Turn nested lists into a float64 tensor."""
    return torch.from_numpy(np.asarray(floats(value)))


def _states(inputs: Inputs) -> list[dict[str, Any]]:
    meta = inputs.get("meta", {})
    types = {"bfloat16": ml_dtypes.bfloat16}

    def array(name: str, value: Any) -> Any:
        dtype = meta.get(name, {}).get("dtype", "float64")
        whole = dtype.startswith(("int", "uint", "bool"))
        return np.asarray(value if whole else floats(value), dtype=types.get(dtype, dtype))

    return [{name: array(name, value) for name, value in state.items()} for state in inputs["states"]]


def _scores(inputs: Inputs) -> Any:
    return floats(inputs["D"] if inputs["link"] == "prob" else inputs["a"])


# ------------------------------------------------------------------------------------------------------ fuse, schedules
@rule
def weighted_average(inputs: Inputs) -> dict[str, Any]:
    average = fuse.average_arrays(_states(inputs), floats(inputs["n"]), int_rule=inputs.get("int_policy", "max"))
    return {"state": average.state, "n_total": average.total, "contributors": average.contributors}


@rule
def cosine_lr(inputs: Inputs) -> dict[str, Any]:
    return {"lr": [schedules.cosine_lr(inputs["lr0"], step, inputs["total"]) for step in inputs["steps"]]}


@rule
def early_stop(inputs: Inputs) -> dict[str, Any]:
    accuracies = [float(value) for value in inputs["val_acc"]]
    stop = schedules.replay_early_stop(accuracies, inputs["eval_every"], inputs["patience"], inputs["total"])
    return {"stop_step": stop.stop_step, "best_step": stop.best_step, "stopped_early": stop.stopped_early}


# ----------------------------------------------------------------------------------------------------------- weightings
@rule
def weights_uniform(inputs: Inputs) -> dict[str, Any]:
    return {"weights": weigh.uniform(inputs["K"], inputs["B"])}


@rule
def weights_variance(inputs: Inputs) -> dict[str, Any]:
    return {"weights": weigh.variance(floats(inputs["logits"]), inputs.get("space", "probs"))}


@rule
def weights_entropy(inputs: Inputs) -> dict[str, Any]:
    logits = floats(inputs["logits"])
    return {"weights": weigh.entropy_softmax(logits, inputs.get("tau", 1.0)), "entropy": weigh.entropy(logits)}


@rule
def weights_dafkd(inputs: Inputs) -> dict[str, Any]:
    return {"weights": weigh.dafkd(floats(inputs["D"]))}


@rule
def weights_fedgo(inputs: Inputs) -> dict[str, Any]:
    scores, counts = _scores(inputs), floats(inputs["n"])
    return {"weights": weigh.odds(counts, scores, inputs["link"]), "odds": weigh.odds_of(scores, inputs["link"])}


# --------------------------------------------------------------------------------------------------------- combinations
@rule
def feddf_avglogits(inputs: Inputs) -> dict[str, Any]:
    return {"target": combine.average_logits(floats(inputs["logits"]), None, inputs.get("temperature", 1.0))}


@rule
def weighted_pseudo_label(inputs: Inputs) -> dict[str, Any]:
    logits, weights = floats(inputs["logits"]), floats(inputs["weights"])
    return {"target": combine.average_logits(logits, weights, inputs.get("temperature", 1.0))}


@rule
def fedgo_pseudo_label(inputs: Inputs) -> dict[str, Any]:
    weights = weigh.odds(floats(inputs["n"]), _scores(inputs), inputs["link"])
    target = combine.average_logits(floats(inputs["logits"]), weights, inputs.get("temperature", 1.0))
    return {"weights": weights, "target": target}


@rule
def avg_probs(inputs: Inputs) -> dict[str, Any]:
    return {"target": combine.average_probs(floats(inputs["logits"]))}


@rule
def fedbe_target(inputs: Inputs) -> dict[str, Any]:
    mean = combine.average_probs(floats(inputs["logits"]))
    return {"mean": mean, "target": combine.sharpen(mean, inputs.get("sharpen_power", 2.0))}


# ----------------------------------------------------------------------------------------------------------- objectives
@rule
def kd_kl(inputs: Inputs) -> dict[str, Any]:
    student = tensor(inputs["student_logits"]).requires_grad_(True)
    options = {"scale_t2": inputs["scale_t2"]} if "scale_t2" in inputs else {}
    loss = objectives.kl(student, tensor(inputs["teacher_logits"]), inputs.get("temperature", 1.0), **options)
    loss.backward()
    return {"loss": loss, "grad": student.grad}


@rule
def soft_cross_entropy(inputs: Inputs) -> dict[str, Any]:
    return {"loss": objectives.soft_cross_entropy(tensor(inputs["student_logits"]), tensor(inputs["target"]))}


class _OneParameter(nn.Module):
    def __init__(self, values: Any):
        super().__init__()
        self.w = nn.Parameter(tensor(values))


@rule
def fedprox_term(inputs: Inputs) -> dict[str, Any]:
    """The task's loss is that of a single class, which is 0; its gradient is the one given, to which mu's is added."""
    module = _OneParameter(inputs["w0"])
    loss_of = fedprox(FedProxObjective(mu=inputs["mu"]), module)
    with torch.no_grad():
        module.w.copy_(tensor(inputs["w"]))
    module.w.grad = tensor(inputs["grad"])
    penalty = loss_of(module, torch.zeros(1, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.int64))
    penalty.backward()
    return {"penalty": penalty, "grad": module.w.grad}
