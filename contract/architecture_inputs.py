"""What samples an architecture reads: type, rank, and edges that it is strict about."""

from typing import Literal

Reads = Literal["anything", "floats", "images", "volumes", "tokens"]

_READS: dict[Reads, tuple[str, set[int]]] = {
    "floats": ("float32", set()),
    "images": ("float32", {3}),
    "volumes": ("float32", {3, 4}),
    "tokens": ("int64", {1}),
}
_FORMS: dict[Reads, str] = {
    "floats": "float32 values",
    "images": "float32 images [C, H, W]",
    "volumes": "float32 images [C, H, W] or volumes [C, D, H, W]",
    "tokens": "int64 token ids [L]",
}


def check_form(name: str, reads: Reads, shape: list[int], dtype: str) -> bool:
    """Refuse samples of another type or rank; return whether their edges matter.

    Args:
        name: of the architecture.
        reads: what it reads.
        shape: of one sample.
        dtype: as networks read it.

    Raises:
        ValueError: says what it reads.
    """
    if reads == "anything":
        return False
    wanted, ranks = _READS[reads]
    if dtype != wanted or (ranks and len(shape) not in ranks):
        raise ValueError(f"{name!r} reads {_FORMS[reads]}; the task's samples are {dtype} {shape}")
    return reads in ("images", "volumes")


def check_edges(name: str, role: str, shape: list[int], edge: int | None, multiple: int) -> None:
    """Refuse images whose edges a network is not made for; arguments as `contract.architectures.Entry` has them.

    Raises:
        ValueError: with the remedy.
    """
    if edge is not None and set(shape[1:]) != {edge}:
        form = f"of exactly {edge}x{edge}"
    elif any(each % multiple for each in shape[1:]):
        form = f"whose edges are multiples of {multiple}"
    else:
        return
    small = {"discriminator": "disc-cnn-mlp, disc-resnet-8 or disc-mlp", "generator": "gen-mlp"}.get(role)
    remedy = f"take {small}, or the recipe fedgo-small" if small else "take another network, or other images"
    raise ValueError(f"{name!r} is for images {form}; the task's samples are {shape}: {remedy}")
