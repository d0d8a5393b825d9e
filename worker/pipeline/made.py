"""What the fuse rule of another package made: the package's fault where it is no model, or no shares."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from contract.choices import Choice
from contract.guard import fault, theirs
from contract.tensors import FLOATS, TensorError, TensorFile, compare
from worker.parts.blocks import BadResult
from worker.parts.errors import PartError
from worker.pipeline.job import Round, header_of


def by_package(
    rule: Callable[[Round, str, Any, Path], Any], job: Round, prototype: str, choice: Choice, target: Path
) -> dict[str, float]:
    """Fuse by the rule of a package, and look at what it made; arguments as a rule's.

    Raises:
        PluginFault: it raised an error, made no model or another one than the prototype's, values that are no finite
            numbers, or gave no share of each client.
        PartError: as the parts that it uses; it names the choice.
    """
    try:
        with theirs(choice):
            counted = rule(job, prototype, choice, target)
    except (BadResult, TensorError) as error:  # updates were looked at when they came
        raise fault(choice, f"made no model {prototype!r}: {error.detail}") from error
    except PartError as error:
        raise PartError(error.code, f"{choice.slot} {choice.kind!r} of {choice.package}: {error.detail}") from error
    _check_counted(choice, counted, {each.client for each in job.updates[prototype]})
    _check_file(job, prototype, choice, target)
    return {name: float(share) for name, share in counted.items()}


def _check_counted(choice: Choice, counted: Any, clients: set[str]) -> None:
    if not isinstance(counted, Mapping):
        raise fault(choice, f"returned {type(counted).__name__}, and what each client counted is a dict of its name")
    for name, share in counted.items():
        if name not in clients:
            raise fault(choice, f"counted {str(name)[:64]!r}, which sent no update")
        if not isinstance(share, int | float | np.number) or not math.isfinite(share) or share < 0:
            raise fault(choice, f"counted client {name!r} as {share!r}; a share is a finite number, at least 0")


def _check_file(job: Round, prototype: str, choice: Choice, target: Path) -> None:
    weights = job.prototype(prototype).network.weights
    try:
        with TensorFile(target) as file:
            if weights is not None:
                compare(file.header, header_of(weights))
            for name in (name for name, info in file.header.tensors.items() if info.dtype in FLOATS):
                if not np.isfinite(file.read(name).astype(np.float64)).all():
                    raise fault(choice, f"made NaN or infinity in tensor {name!r} of model {prototype!r}")
    except TensorError as error:
        raise fault(choice, f"made no model {prototype!r}: {error.detail}") from error
    except FileNotFoundError as error:
        raise fault(choice, f"made no file of model {prototype!r}") from error
