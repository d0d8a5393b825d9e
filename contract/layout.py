"""What an update's file must hold: both ends derive it from the local plan and the model that was sent."""

from contract.local import BinaryPrecision, LocalPlan
from contract.tensors import DTYPES, Header, TensorInfo
from contract.updates import BITS, SCALE, Layout, binary_weights


def layout(plan: LocalPlan, base: Header, num_classes: int, beside: Header | None = None) -> Layout:
    """Return name -> (dtype, shape) of the tensors of an update, in file order.

    Plain training sends the model's tensors. Binary precision replaces a weight by its bits and scales; an objective
    adds tensors of its own, or sends those alone.

    Args:
        plan: what the client runs.
        base: header of the model it starts from.
        num_classes: C.
        beside: header of the file that comes beside the model and that the objective's tensors take their shapes from
            (`ClientObjective.shaped_by`): the public set's (DS-FL), the generator's (DaFKD).

    Raises:
        TensorError: the objective sends features, and the model does not say how many it has; or the file beside the
            model is missing.
    """
    found: Layout = {}
    if plan.objective.sends_weights:
        found = {name: (info.dtype, info.shape) for name, info in base.tensors.items()}
    if isinstance(plan.precision, BinaryPrecision):
        for name in binary_weights(base):
            info = base.tensors[name]
            del found[name]
            found[BITS + name] = ("U8", ((info.numel + 7) // 8,))
            found[SCALE + name] = ("F32", (info.shape[0],))
    return found | plan.objective.adds(base, num_classes, beside)


def manifest(plan: LocalPlan, base: Header, num_classes: int, beside: Header | None = None) -> Header:
    """Return the header that an update's tensors must match."""
    tensors, end = {}, 0
    for name, (dtype, shape) in layout(plan, base, num_classes, beside).items():
        info = TensorInfo(dtype, shape, 0, 0)
        begin, end = end, end + info.numel * DTYPES[dtype].itemsize
        tensors[name] = TensorInfo(dtype, shape, begin, end)
    return Header(tensors, base.metadata)
