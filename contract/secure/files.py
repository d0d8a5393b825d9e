"""Files of masked updates: the model's names and shapes, residues in the place of values."""

from pathlib import Path

from contract.errors import RuleError
from contract.secure.fixed import FixedPoint
from contract.secure.masks import Masks
from contract.tensors import DTYPES, TensorFile, TensorWriter

_BLOCK = 1 << 20


def count_clipped(plain: Path, base: Path, fixed: FixedPoint) -> int:
    """Return how many values of an update are beyond the clip."""
    clipped = 0
    with TensorFile(plain) as update, TensorFile(base) as sent:
        for name, info in sent.header.tensors.items():
            for start in range(0, info.numel, _BLOCK):
                count = min(_BLOCK, info.numel - start)
                clipped += fixed.clipped(update.read_block(name, start, count), sent.read_block(name, start, count))
    return clipped


def mask_file(
    plain: Path, base: Path, target: Path, fixed: FixedPoint, weight: int, masks: Masks, metadata: dict[str, str]
) -> None:
    """Write an update masked, block by block.

    Args:
        plain: the update, with exactly the model's tensors.
        base: the model that was sent; its order is that of the masks.
        weight: n_k.
        metadata: of the file.

    Raises:
        RuleError: non_finite, bad_weight; naming the tensor.
    """
    with TensorFile(plain) as update, TensorFile(base) as sent:
        infos = {name: (fixed.container, info.shape) for name, info in sent.header.tensors.items()}
        with TensorWriter(target, infos, metadata) as writer:
            for name, info in sent.header.tensors.items():
                for start in range(0, info.numel, _BLOCK):
                    count = min(_BLOCK, info.numel - start)
                    values, before = update.read_block(name, start, count), sent.read_block(name, start, count)
                    try:
                        encoded = fixed.encode(values, before, weight)
                    except RuleError as error:
                        raise RuleError(error.code, f"tensor {name!r}: {error.detail}") from error
                    writer.write(name, (encoded + masks.next(count)).view(DTYPES[fixed.container]))
