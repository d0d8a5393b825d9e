"""First models of parted networks: the tensors that rounds move in one file, the base in another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from contract.groups import original
from contract.nn.codec import load_part, manifest
from contract.partition import SENT_BASE, Parts, PatternError, partition, untold
from contract.tensors import Header, TensorError, TensorFile
from contract.whole import WholeFile, copy_tensors, part_files, require_base
from worker.specs import JobFailure, PrototypeSpec


def fill(module: nn.Module, weights: Path, header: Header, parts: Parts | None, owner: str) -> bool:
    """Load an imported file that lacks nothing but tensors that devices train, such as adapters; those stay as drawn.

    Returns:
        Whether it lacks any. If not, nothing is loaded.

    Raises:
        JobFailure: schema_mismatch: it is a part of a network itself; bad_option: a pattern.
    """
    try:
        require_base(header, None)
        own = manifest(module)
        lacking = {name for name in own.tensors if name not in header.tensors}
        if parts is None or not lacking or not lacking <= untold(parts, own):
            return False
        load_part(module, weights)
    except TensorError as error:
        raise JobFailure("schema_mismatch", f"{owner}: {error.detail}") from error
    except PatternError as error:
        raise JobFailure("bad_option", f"{owner}: {error}") from error
    return True


@dataclass(frozen=True)
class Parted:
    """First models that are parted.

    Attributes:
        bases: files of what rounds do not move, by their names in the state.
        moving: of each model the names of the tensors that devices train.
    """

    bases: dict[str, Path]
    moving: dict[str, frozenset[str]]


def part(prototypes: Sequence[PrototypeSpec], models: Mapping[str, Path], folder: Path) -> Parted:
    """Part the first models in place, where their prototypes say so.

    All groups' models of a prototype have the main one's base, so that a device fetches it once, whatever its group.

    Args:
        prototypes: the main one before its groups' copies.
        models: the whole networks' files, by name.
        folder: for the bases.

    Raises:
        JobFailure: bad_option: a pattern.
    """
    bases: dict[str, Path] = {}
    trained: dict[str, frozenset[str]] = {}
    for number, each in enumerate(prototypes):
        if each.parts is None:
            continue
        whole, main = models[each.name], SENT_BASE.named(original(each.name))
        with TensorFile(whole) as file:
            try:
                found = partition(each.parts, file.header)
            except PatternError as error:
                raise JobFailure("bad_option", f"prototype {each.name!r}: {error}") from error
        moving = whole.with_suffix(".part")
        if main not in bases:
            bases[main] = folder / f"base-{number}.safetensors"
            part_files(whole, found.shared, bases[main], moving)
            metadata = _metadata(moving)
        else:
            with WholeFile(whole) as network:
                copy_tensors(network, found.shared, moving, metadata)
        moving.replace(whole)
        bases[SENT_BASE.named(each.name)], trained[each.name] = bases[main], found.moving
    return Parted(bases, trained)


def _metadata(path: Path) -> dict[str, str]:
    with TensorFile(path) as file:
        return file.header.metadata
