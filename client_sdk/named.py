"""Inputs of a batch: one tensor, or several by the names of the arguments that a module takes."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from client_sdk import arrays
from client_sdk.errors import DatasetError, ModelMismatch


class Named(dict[str, Tensor]):
    """Several inputs of the same samples, each [B, ...], by the names of the arguments that take them."""


Inputs = Tensor | Named
"""[B, *shape], or several of them."""


def taken(values: Any, row: int | None = None) -> Inputs:
    """Return a user's inputs as tensors: of one sample where `row` is given, else of all.

    Raises:
        DatasetError: they are no numbers, or there are different numbers of them.
    """
    if not isinstance(values, Mapping):
        return arrays.tensor(values, "inputs", row)
    if not values:
        raise DatasetError("inputs", "are a dict without anything in it")
    found = Named({str(name): _named(value, _field(str(name)), row) for name, value in values.items()})
    if row is None:
        counts = {name: len(value) if value.ndim else 0 for name, value in found.items()}
        if len(set(counts.values())) > 1:
            told = ", ".join(f"{name!r} {number}" for name, number in counts.items())
            raise DatasetError("inputs", f"are of different numbers of samples: {told}")
    return found


def _named(value: Any, field: str, row: int | None) -> Tensor:
    try:
        return arrays.tensor(value, field, row)
    except DatasetError as error:
        said = str(error).removeprefix(f"{field}: ")
        raise DatasetError(
            field, f"{said}; or leave it out: columns=({{'argument': 'column', …}}, 'label') says which are read"
        ) from error


def parts(inputs: Inputs) -> list[tuple[str, Tensor]]:
    """Return each tensor with the field that it is told by."""
    if isinstance(inputs, Tensor):
        return [("inputs", inputs)]
    return [(_field(name), value) for name, value in inputs.items()]


def _field(name: str) -> str:
    return f"inputs {name!r}"


def changed(inputs: Inputs, change: Callable[[Tensor], Tensor]) -> Inputs:
    """Return inputs with each tensor changed."""
    if isinstance(inputs, Tensor):
        return change(inputs)
    return Named({name: change(value) for name, value in inputs.items()})


def floating(inputs: Inputs, change: Callable[[Tensor], Tensor]) -> Inputs:
    """Return inputs with each floating tensor changed."""
    return changed(inputs, lambda value: change(value) if value.is_floating_point() else value)


def joined(several: Sequence[Inputs], how: Callable[[list[Tensor]], Tensor]) -> Inputs:
    """Return several inputs as one, put together by `torch.stack` or `torch.cat`; all have the same names."""
    first = several[0]
    if isinstance(first, Tensor):
        return how(cast(list[Tensor], list(several)))
    named = cast(Sequence[Named], several)
    return Named({name: how([each[name] for each in named]) for name in first})


def count(inputs: Inputs | Mapping[str, Tensor]) -> int:
    """Return B."""
    return len(inputs) if isinstance(inputs, Tensor) else len(next(iter(inputs.values())))


def first_not_finite(inputs: Inputs) -> int | None:
    """Return which sample is the first that has a value which is NaN or infinite, if there is one."""
    bad = torch.zeros(count(inputs), dtype=torch.bool)
    for _, value in parts(inputs):
        if value.is_floating_point():
            bad |= (~torch.isfinite(value)).reshape(len(value), -1).any(1)
    return int(bad.nonzero()[0]) if bool(bad.any()) else None


def through(network: Callable[..., Any], inputs: Inputs | Mapping[str, Tensor]) -> Any:
    """Return what a network makes of inputs; several go to the arguments of their names."""
    return network(inputs) if isinstance(inputs, Tensor) else network(**inputs)


def check_arguments(module: nn.Module, names: Sequence[str]) -> None:
    """Refuse a module whose `forward` does not take arguments of these names, and no others.

    Raises:
        ModelMismatch: naming the first that does not fit, and the remedy.
    """
    try:
        signature = inspect.signature(module.forward)
    except (TypeError, ValueError):  # nothing says what it takes
        return
    try:
        signature.bind(**dict.fromkeys(names))
    except TypeError as error:
        raise ModelMismatch(
            f"model: forward takes {signature}, and a sample's inputs are {', '.join(names)}: {error}. Pass columns=, "
            "which column goes to which argument, such as columns=({'input_ids': 'ids', 'mask': 'mask'}, 'label')"
        ) from error


def alone(batches: Iterable[tuple[Inputs, Tensor]], what: str) -> Iterator[Tensor]:
    """Yield the inputs of batches; arguments and errors as `one`'s."""
    for inputs, _ in batches:
        yield one(inputs, what)


def one(inputs: Inputs | None, what: str) -> Tensor:
    """Return inputs that are one tensor.

    Args:
        what: takes one alone, for the message.

    Raises:
        DatasetError: they are several.
    """
    if isinstance(inputs, Named):
        raise several(list(inputs), what)
    assert inputs is not None
    return inputs


def several(names: Sequence[str], what: str) -> DatasetError:
    """Return the refusal of several inputs by what takes one."""
    return DatasetError(
        "inputs",
        f"are {', '.join(map(repr, names))}, and {what} takes one. Pass columns=, such as "
        f"columns=({names[0]!r}, 'label'), or columns=([…], 'label') for one row of several numbers; several go to a "
        "module of your own (model=) by the names of its arguments",
    )
