"""A round in small, before the device joins: what can go wrong with one batch goes wrong here, where nobody waits."""

import copy
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from client_sdk import models, modes, named, parted
from client_sdk.data import Samples
from client_sdk.documents import is_document
from client_sdk.errors import ModelMismatch, PotstillError, TrainingError
from client_sdk.outputs import dtype_of
from client_sdk.training import train_local
from client_sdk.wishes import PLAIN, Wishes
from contract import architectures
from contract.local import LocalPlan, SgdObjective
from contract.nn import codec
from contract.tensors import Header, TensorInfo
from contract.updates import FEATURES_KEY
from contract.wire.devices import FederationCard
from contract.wire.federations import Prototype

logger = logging.getLogger("client_sdk")


def check_tensors(module: nn.Module, card: FederationCard, prototype: Prototype) -> None:
    """Hold the user's own module against the federation's model: the card's tensors, or those of its architecture.

    Raises:
        ModelMismatch: naming the first tensors that differ.
    """
    told = card.tensors.get(prototype.name)
    if told is None and not _is_custom(prototype):
        models.check_tensors(module, codec.manifest(models.make(prototype, card.task, None)))
    elif told is not None:
        infos = {name: TensorInfo(kind.dtype, tuple(kind.shape), 0, 0) for name, kind in told.items()}
        models.check_tensors(module, Header(infos, {}))


def _is_custom(prototype: Prototype) -> bool:
    """Whether the network is its users' own, or one of which this device knows no more than that."""
    if is_document(prototype.architecture):  # a member fetches it; the weights are held against it then
        return True
    try:
        return not architectures.is_server_side(prototype.architecture)
    except ValueError:
        return True


def attempt(
    module: nn.Module,
    samples: Samples,
    plan: LocalPlan,
    device: torch.device,
    prototype: Prototype | None = None,
    wishes: Wishes = PLAIN,
) -> float:
    """Train a copy of the network for one step as the plan says; return how long that took, in seconds.

    It has the weights that the module has now, which need not be the federation's: what is not finite after the step
    says nothing yet. An objective that begins with what only a member is sent (DS-FL's public set, DaFKD's generator)
    is left out.

    Args:
        module: as in `client_sdk.training.train_local`; stays as it is.
        samples: the device's, checked against the task.
        wishes: what its user wants otherwise.

    Raises:
        ModelMismatch, DatasetError, UsageError: what would have stopped the round.
    """
    began = time.monotonic()
    few = samples.some(plan.batch_size)
    changes: dict[str, object] = {"epochs": 1}
    if plan.objective.shaped_by is not None:
        changes["objective"] = SgdObjective()
    try:
        with _spare(module) as spare:
            parts = parted.partition_of(spare, prototype)
            base = parted.sent_header(_header(spare, few, plan, device), parts)
            tried = plan.model_copy(update=changes)
            given: dict[str, Any] = {"device": device, "base": base, "prototype": prototype, "parts": parts}
            train_local(spare, few, tried, seed=0, wishes=wishes, **given)
    except TrainingError as error:
        logger.debug("a first step: %s", error)
    except PotstillError:
        raise
    except torch.OutOfMemoryError as error:
        raise ModelMismatch(
            f"model: {device} has too little memory for a step with {len(few)} samples; take another device, or have "
            "the operator lower local.batch_size"
        ) from error
    except Exception as error:
        raise ModelMismatch(
            f"model: a step with {len(few)} samples of {_kind(few)} failed: {type(error).__name__}: "
            f"{str(error).strip().partition(chr(10))[0]} (its parameters are {_dtypes(module)})"
        ) from error
    return time.monotonic() - began


def _kind(samples: Samples) -> str:
    inputs = samples.inputs
    assert inputs is not None
    kinds = {
        field: f"{str(value.dtype).removeprefix('torch.')} {list(value.shape[1:])}"
        for field, value in named.parts(inputs)
    }
    return kinds.get("inputs") or ", ".join(f"{field} {kind}" for field, kind in kinds.items())


def _dtypes(module: nn.Module) -> str:
    return ", ".join(sorted({str(value.dtype).removeprefix("torch.") for value in module.parameters()})) or "none"


def _header(module: nn.Module, samples: Samples, plan: LocalPlan, device: torch.device) -> Header:
    """Return the header of a first model of this network, with the size of its features where the plan reads them.

    A network without features has one here: the objective itself says best what it needs.
    """
    header, size = codec.manifest(module), 1
    if "features" not in plan.objective.needs:
        return header
    if not callable(getattr(module, "features", None)):
        return Header(header.tensors, {**header.metadata, FEATURES_KEY: str(size)})
    module.to(device)
    inputs, _ = next(samples.given_as(dtype_of(module)).read([torch.zeros(1, dtype=torch.int64)], device))
    with modes.evaluation(module), torch.no_grad():
        features = named.through(module.features, inputs)  # type: ignore[arg-type]
    size = features.shape[-1] if isinstance(features, torch.Tensor) and features.ndim else 0
    return Header(header.tensors, {**header.metadata, FEATURES_KEY: str(size)})


@contextmanager
def _spare(module: nn.Module) -> Iterator[nn.Module]:
    """Yield a copy, or the module itself where it cannot be copied; its state is then as before afterwards."""
    try:
        spare = copy.deepcopy(module)
    except Exception as error:  # noqa: BLE001  # a module may hold what cannot be copied
        logger.debug("%s cannot be copied: %s", type(module).__name__, error)
    else:
        yield spare
        return
    place = next((value.device for value in module.parameters()), torch.device("cpu"))
    before = {name: value.detach().clone() for name, value in module.state_dict().items()}
    try:
        yield module
    finally:
        module.to(place).zero_grad(set_to_none=True)
        with torch.no_grad():
            for name, value in module.state_dict(keep_vars=True).items():
                value.copy_(before[name])
