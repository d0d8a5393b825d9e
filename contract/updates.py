"""What an update's file holds, beside or instead of the model's own tensors: both ends derive it from the local plan.

Plain training sends the model's tensors. SCAFFOLD adds ``control.<parameter>``, FedTGP ``class_means`` and
``class_counts``, binary precision replaces a weight by ``bits.<weight>`` and ``scale.<weight>``. DS-FL sends nothing of
the model but ``predictions``: probabilities of the classes for every sample of the public set.
"""

import numpy as np

from contract.local import BinaryPrecision, DsFlObjective, FedTgpObjective, LocalPlan, ScaffoldObjective
from contract.tensors import BUFFERS_KEY, DTYPES, FLOATS, Header, TensorError, TensorFile, TensorInfo

FEATURES_KEY = "potstill.features"
"""Metadata of a first model: the size d of its features, where the network has them."""

MODEL_KEYS = (BUFFERS_KEY, FEATURES_KEY)
"""Metadata that belongs to a model and not to who made it: averages and students keep it."""

PUBLIC, TARGETS = "public", "targets"
"""DS-FL's extras: the public set (tensor ``inputs`` [P, ...]), the server's targets on it (``targets`` F32 [P, C])."""

PREDICTIONS = "predictions"
"""The one tensor of DS-FL's update, F32 [P, C]."""

_LAST_LAYER = ("head.", "adapter.")
"""How `contract.nn.classifier.Classifier` names its last layer; in other networks it is the last weight."""

_SUM_TOLERANCE = 1e-3
_ROWS = 65_536

Layout = dict[str, tuple[str, tuple[int, ...]]]


def parameters(base: Header) -> list[str]:
    """Return the names of a model's float tensors that are no buffers."""
    return [name for name, info in base.tensors.items() if info.dtype in FLOATS and name not in base.buffers]


def binary_weights(base: Header) -> list[str]:
    """Return the weights that binary precision sends as bits (FedDF 4.3).

    They are the parameters with two axes or more, but for the first and the last layer. The last one is the head, all
    of its layers where it has several; the adapter in front of a head that all architectures share goes with it: such a
    head is averaged with those of other networks, which may be full precision (Fed-ET).
    """
    weights = [name for name in parameters(base) if len(base.tensors[name].shape) >= 2]
    return [name for name in weights[1:-1] if not name.startswith(_LAST_LAYER)]


def layout(plan: LocalPlan, base: Header, num_classes: int, public: Header | None = None) -> Layout:
    """Return name -> (dtype, shape) of the tensors of an update, in file order.

    Args:
        plan: what the client runs.
        base: header of the model it starts from.
        num_classes: C.
        public: header of the public set's file, where the plan has one (DS-FL).

    Raises:
        TensorError: the objective sends features, and the model does not say how many it has; or predictions, and there
            is no public set.
    """
    if isinstance(plan.objective, DsFlObjective):
        return {PREDICTIONS: ("F32", (public_samples(public), num_classes))}
    found: Layout = {name: (info.dtype, info.shape) for name, info in base.tensors.items()}
    if isinstance(plan.precision, BinaryPrecision):
        for name in binary_weights(base):
            info = base.tensors[name]
            del found[name]
            found[f"bits.{name}"] = ("U8", ((info.numel + 7) // 8,))
            found[f"scale.{name}"] = ("F32", (info.shape[0],))
    if isinstance(plan.objective, ScaffoldObjective):
        found |= {f"control.{name}": ("F32", base.tensors[name].shape) for name in parameters(base)}
    if isinstance(plan.objective, FedTgpObjective):
        found["class_means"] = ("F32", (num_classes, features_of(base)))
        found["class_counts"] = ("I64", (num_classes,))
    return found


def features_of(base: Header) -> int:
    """Return the size of a model's features.

    Raises:
        TensorError: the model does not say.
    """
    text = base.metadata.get(FEATURES_KEY, "")
    if not text.isdecimal():
        raise TensorError("tensors", "this objective sends features; take an architecture that has named features")
    return int(text)


def public_samples(public: Header | None) -> int:
    """Return P, the number of samples of a public set.

    Raises:
        TensorError: there is no such set, or it has no tensor 'inputs' [P, ...], P > 0.
    """
    info = public.tensors.get("inputs") if public is not None else None
    if info is None or not info.shape or not info.shape[0]:
        raise TensorError(
            "tensors", "DS-FL predicts on a public set, which did not come: a file with 'inputs' [P, ...]"
        )
    return info.shape[0]


def check_predictions(file: TensorFile) -> None:
    """Refuse predictions [P, C] that are no probabilities: each in [0, 1], each row with the sum 1.

    Raises:
        TensorError: code 'values', naming the first such row.
    """
    rows, classes = file.info(PREDICTIONS).shape
    for start in range(0, rows, _ROWS):
        count = min(_ROWS, rows - start)
        block = file.read_block(PREDICTIONS, start * classes, count * classes).reshape(count, classes)
        sums = block.sum(axis=1, dtype=np.float64)
        wrong = ~((np.abs(sums - 1) <= _SUM_TOLERANCE) & (block >= 0).all(axis=1))  # also NaN
        if wrong.any():
            row = int(np.argmax(wrong))
            raise TensorError(
                "values",
                f"predictions: row {start + row} is no probabilities (least {block[row].min()}, sum {sums[row]}); send "
                "the softmax of the logits",
                tensor=PREDICTIONS,
            )


def manifest(plan: LocalPlan, base: Header, num_classes: int, public: Header | None = None) -> Header:
    """Return the header that an update's tensors must match."""
    tensors, end = {}, 0
    for name, (dtype, shape) in layout(plan, base, num_classes, public).items():
        info = TensorInfo(dtype, shape, 0, 0)
        begin, end = end, end + info.numel * DTYPES[dtype].itemsize
        tensors[name] = TensorInfo(dtype, shape, begin, end)
    return Header(tensors, base.metadata)
