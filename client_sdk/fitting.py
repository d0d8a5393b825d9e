"""Samples held against a federation's task: its dtypes, or the sentence that says what does not fit."""

import logging
from collections.abc import Sequence

import torch
from torch import Tensor

from client_sdk import named
from client_sdk.errors import DatasetError
from client_sdk.named import Inputs, Named
from contract import targets
from contract.labels import BFLOAT16
from contract.wire.federations import Task

logger = logging.getLogger("client_sdk")


def conform(inputs: Inputs, labels: Tensor, task: Task, rows: Sequence[int] | None = None) -> tuple[Inputs, Tensor]:
    """Return samples in the task's dtypes, or say what is wrong with them.

    Args:
        inputs, labels: [B, *shape] and [B, ...]. Of several inputs the first is what the task describes.
        task: the federation's.
        rows: which samples of the data set these are; by default the first ones.

    Raises:
        DatasetError: naming the field, the sample and the remedy.
    """
    return conform_inputs(inputs, task, rows), conform_labels(labels, task, rows)


def conform_inputs(inputs: Inputs, task: Task, rows: Sequence[int] | None = None) -> Inputs:
    """Return inputs [B, *shape] in the task's dtype; arguments and errors as `conform`'s.

    Of several the others stay as they are: nothing says what they should be.
    """
    if isinstance(inputs, Tensor):
        return _conformed(inputs, task, rows)
    first = next(iter(inputs))
    try:
        made = _conformed(inputs[first], task, rows)
    except DatasetError as error:
        said = str(error).removeprefix("inputs: ")
        raise DatasetError(
            f"inputs {first!r}",
            f"{said}. The first of several inputs is the one that the federation describes; another order: "
            "columns=({'argument': 'column', …}, 'label')",
        ) from error
    conformed = Named({**inputs, first: made})
    bad = named.first_not_finite(conformed)
    if bad is not None:
        raise not_finite(bad if rows is None else rows[bad])
    return conformed


def _conformed(inputs: Tensor, task: Task, rows: Sequence[int] | None) -> Tensor:
    _check_shape(inputs, task)
    wanted = task.input.dtype
    if wanted == "uint8":
        if inputs.dtype != torch.uint8:
            raise DatasetError("inputs", f"are {_dtype(inputs)}, wanted are bytes from 0 to 255; use x.astype('uint8')")
        return inputs
    if wanted in ("float32", "float16"):
        if not inputs.is_floating_point():
            raise DatasetError(
                "inputs",
                f"are {_dtype(inputs)}, wanted is {wanted}. They are not rescaled silently: convert them as all "
                "devices of the federation do, for bytes of an image usually x.astype('float32') / 255",
            )
        inputs = inputs.to(torch.float32 if wanted == "float32" else torch.float16)
        if not torch.isfinite(inputs).all():
            found = int((~torch.isfinite(inputs)).flatten(1).any(1).nonzero()[0])
            raise not_finite(found if rows is None else rows[found])
        return inputs
    if inputs.is_floating_point() or inputs.dtype == torch.bool:
        raise DatasetError("inputs", f"are {_dtype(inputs)}, wanted are whole numbers (int64), such as token ids")
    return inputs.to(torch.int64)


def not_finite(row: int) -> DatasetError:
    """Return the refusal of a sample that has a value which is no number."""
    return DatasetError("inputs", f"sample {row} has a value that is NaN or infinite; repair or drop it")


def conform_labels(labels: Tensor, task: Task, rows: Sequence[int] | None = None) -> Tensor:
    """Return labels [B, *task.label_shape], of classes int64; arguments and errors as `conform`'s."""
    if task.kind == "classification" and labels.ndim != 1:
        raise DatasetError(
            "labels",
            f"have shape {list(labels.shape)}; one whole number per sample is needed, shape [{len(labels)}]"
            + targets.reshaping(labels.shape[1:], task),
        )
    if labels.dtype == torch.bfloat16:
        raise DatasetError("labels", BFLOAT16)
    try:
        return torch.from_numpy(targets.conform(labels.numpy(), task, rows))
    except ValueError as error:
        raise DatasetError("labels", str(error).removeprefix("labels ")) from error


def check_labelled(labels: Tensor, task: Task) -> None:
    """Refuse labels of which none counts, and warn of those that look like a mistake; all of a data set's.

    Raises:
        DatasetError: every label is the one that is ignored.
    """
    try:
        remark = targets.check_labelled(labels.numpy(), task)
    except ValueError as error:
        raise DatasetError("labels", str(error).removeprefix("labels ")) from error
    if remark:
        logger.warning(remark)


def _check_shape(inputs: Tensor, task: Task) -> None:
    have, want = list(inputs.shape[1:]), task.input.shape
    if have == want:
        return
    same_size = inputs[0].numel() == torch.Size(want).numel()
    channels_last = len(have) == 3 and [have[2], have[0], have[1]] == want
    if channels_last:
        remedy = "the channels come last: use x.permute(0, 3, 1, 2) (numpy: transpose)"
    elif same_size:
        remedy = f"reshape them: x.reshape(-1, {', '.join(map(str, want))})"
    else:
        remedy = "resize or crop them as all devices of the federation do"
    raise DatasetError("inputs", f"one sample has shape {have}, wanted is {want}; {remedy}")


def check_classes(mine: list[str] | None, wanted: list[str] | None) -> None:
    """Refuse labels that mean something else than those of the other devices, before anything is trained."""
    if wanted is None or mine == wanted:
        return
    shown = f"the federation's are {_short(wanted)}"
    if mine is None:
        raise DatasetError("classes", f"{shown}; pass classes=[...], the names in the order of your labels")
    raise DatasetError(
        "classes",
        f"yours are {_short(mine)}, {shown}; renumber your labels to that order, then pass classes=[...] in that order",
    )


def _short(names: list[str]) -> str:
    return ", ".join(names[:20]) + (f", … ({len(names)})" if len(names) > 20 else "")


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
