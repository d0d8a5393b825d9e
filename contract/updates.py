"""What an update's file holds, beside or instead of the model's own tensors: both ends derive it from the local plan.

Plain training sends the model's tensors. SCAFFOLD adds ``control.<parameter>``, FedTGP ``class_means`` and
``class_counts``, binary precision replaces a weight by ``bits.<weight>`` and ``scale.<weight>``.
"""

from contract.local import BinaryPrecision, FedTgpObjective, LocalPlan, ScaffoldObjective
from contract.tensors import BUFFERS_KEY, DTYPES, FLOATS, Header, TensorError, TensorInfo

FEATURES_KEY = "potstill.features"
"""Metadata of a first model: the size d of its features, where the network has them."""

MODEL_KEYS = (BUFFERS_KEY, FEATURES_KEY)
"""Metadata that belongs to a model and not to who made it: averages and students keep it."""

Layout = dict[str, tuple[str, tuple[int, ...]]]


def parameters(base: Header) -> list[str]:
    """Return the names of a model's float tensors that are no buffers."""
    return [name for name, info in base.tensors.items() if info.dtype in FLOATS and name not in base.buffers]


def binary_weights(base: Header) -> list[str]:
    """Return the weights that binary precision sends as bits: parameters with two axes or more, without the first and
    the last of them, which stay as they are (FedDF 4.3).
    """
    return [name for name in parameters(base) if len(base.tensors[name].shape) >= 2][1:-1]


def layout(plan: LocalPlan, base: Header, num_classes: int) -> Layout:
    """Return name -> (dtype, shape) of the tensors of an update, in file order.

    Args:
        plan: what the client runs.
        base: header of the model it starts from.
        num_classes: C.

    Raises:
        TensorError: the objective sends features, and the model does not say how many it has.
    """
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


def manifest(plan: LocalPlan, base: Header, num_classes: int) -> Header:
    """Return the header that an update's tensors must match."""
    tensors, end = {}, 0
    for name, (dtype, shape) in layout(plan, base, num_classes).items():
        info = TensorInfo(dtype, shape, 0, 0)
        begin, end = end, end + info.numel * DTYPES[dtype].itemsize
        tensors[name] = TensorInfo(dtype, shape, begin, end)
    return Header(tensors, base.metadata)
