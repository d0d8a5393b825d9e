"""Which of a network's tensors rounds move, which each device keeps to itself, and which stay as they were first.

A prototype tells it by patterns of tensor names, in which ``*`` is any text, none included, and all else is itself:
``head.*``, ``*.lora_*``.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from contract.bodies import TEXTS, Part
from contract.bounds import SHOWN, AtMost
from contract.choices import Carried, declare
from contract.tensors import FLOATS, MAX_NAME, Header
from contract.updates import BASE

SENT_BASE = declare(Carried(BASE, follows="devices", sent=True))
"""A prototype's base: it is made with the first models, and no rollback, promotion or gate changes it."""
MOST_PATTERNS = 64
_LORA_A = "lora_a"

Pattern = Annotated[str, Field(min_length=1), AtMost(MAX_NAME), SHOWN]
Lora = Literal["factors", "a_frozen"]


class Parts(Part):
    """How a prototype's network is parted; see `partition`."""

    trains: Annotated[list[Pattern] | None, TEXTS] = Field(
        None,
        min_length=1,
        max_length=MOST_PATTERNS,
        exclude_if=lambda value: value is None,
        description="names of the tensors that devices train and send, `*` for any text; all others are the base, "
        "which devices are sent once. null: all tensors",
        examples=[["head.*", "*.lora_*"]],
    )
    keeps: Annotated[list[Pattern], TEXTS] = Field(
        default_factory=list,
        max_length=MOST_PATTERNS,
        exclude_if=lambda value: not value,
        description="names of the tensors that each device trains for itself, and never sends (FedPer's head, FedBN's "
        "BatchNorm)",
        examples=[["head.*"]],
    )
    lora: Lora = Field(
        "factors",
        exclude_if=lambda value: value == "factors",
        description="factors: LoRA's A and B are averaged each by itself, which is not the average of their products; "
        "a_frozen: A stays as the seed drew it, so the average of B is exactly that (FFA-LoRA)",
    )

    @property
    def parted(self) -> bool:
        """Whether the network is in two files: what rounds move, and its base."""
        return self.trains is not None or bool(self.keeps)

    @property
    def in_words(self) -> str:
        """What of the network moves, stays and is kept to oneself; empty where all of it is trained and sent."""
        said = [] if self.trains is None else [f"trains {', '.join(self.trains)}; the rest is frozen"]
        said += [f"keeps {', '.join(self.keeps)} on devices"] if self.keeps else []
        said += ["LoRA's factor A is frozen"] if self.lora == "a_frozen" else []
        return "; ".join(said)


@dataclass(frozen=True)
class Partition:
    """A network's tensors by what becomes of them, each in the network's order.

    Attributes:
        shared: trained by devices, sent, averaged; the tensors of a round's model.
        kept: trained by each device, never sent.
        frozen: trained by nobody.
    """

    shared: tuple[str, ...]
    kept: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()

    @property
    def moving(self) -> frozenset[str]:
        """What a device's training may change."""
        return frozenset((*self.shared, *self.kept))


class PatternError(ValueError):
    """Patterns that part no network.

    Attributes:
        field: `trains`, `trains.0`, `keeps`, `lora`.
        detail: what is wrong, and what to do.
    """

    def __init__(self, field: str, detail: str):
        super().__init__(f"{field}: {detail}")
        self.field, self.detail = field, detail


def matches(name: str, pattern: str) -> bool:
    """Whether a pattern is a name's; in time that grows with both lengths, whatever the pattern."""
    first, *rest = pattern.split("*")
    if not rest:
        return name == pattern
    *middle, last = rest
    if len(name) < len(first) + len(last) or not name.startswith(first) or not name.endswith(last):
        return False
    at, end = len(first), len(name) - len(last)
    for piece in middle:  # the first place is as good as any: what follows has the most room
        found = name.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def partition(parts: Parts, network: Header) -> Partition:
    """Return which tensors of a network are shared, kept and frozen.

    Args:
        parts: the patterns.
        network: header of the whole network; its metadata tells buffers.

    Raises:
        PatternError: a pattern matches nothing; `trains` matches everything, or no parameter; `keeps` leaves nothing to
            average; a tensor is both trained and kept; there is no factor A to freeze.
    """
    names = list(network.tensors)
    trains, keeps = _matched("trains", parts.trains or [], names), _matched("keeps", parts.keeps, names)
    both = next((name for name in names if name in trains and name in keeps), None)
    if both is not None:
        detail = f"{both!r} is of `trains`, too, which devices send; a tensor is sent or kept: take it out of one"
        raise PatternError("keeps", detail)
    if parts.trains is not None and len(trains) == len(names):
        raise PatternError("trains", f"matches all {len(names)} tensors, so nothing is frozen; leave it out")
    shared = trains if parts.trains is not None else frozenset(names) - keeps
    if parts.lora == "a_frozen":
        shared = _without_a(shared)
    _check_trainable("keeps" if parts.trains is None else "trains", shared, network)
    return Partition(
        tuple(name for name in names if name in shared),
        tuple(name for name in names if name in keeps),
        tuple(name for name in names if name not in shared and name not in keeps),
    )


def untold(parts: Parts, network: Header) -> frozenset[str]:
    """Return the names of the tensors that an imported network may lack: devices train them, or the seed draws them.

    Raises:
        PatternError: a pattern matches nothing.
    """
    names = list(network.tensors)
    return _matched("trains", parts.trains or [], names) | _matched("keeps", parts.keeps, names)


def _matched(field: str, patterns: Sequence[str], names: Sequence[str]) -> frozenset[str]:
    found: set[str] = set()
    for number, pattern in enumerate(patterns):
        own = {name for name in names if matches(name, pattern)}
        if not own:
            shown = ", ".join(repr(name) for name in names[:3])
            raise PatternError(
                f"{field}.{number}",
                f"{pattern!r} is the name of none of the network's {len(names)} tensors: {shown}, …",
            )
        found |= own
    return frozenset(found)


def is_factor_a(name: str) -> bool:
    """Whether a tensor is LoRA's factor A, ours (``….lora_a.weight``) or PEFT's (``….lora_A.default.weight``)."""
    return _LORA_A in name.lower().split(".")


def _without_a(shared: frozenset[str]) -> frozenset[str]:
    factors = {name for name in shared if is_factor_a(name)}
    if not factors:
        raise PatternError(
            "lora", "'a_frozen' freezes LoRA's factor A, and `trains` matches no tensor `….lora_a.…`; leave it out"
        )
    return shared - factors


def _check_trainable(field: str, shared: Collection[str], network: Header) -> None:
    floats = [name for name in shared if network.tensors[name].dtype in FLOATS and name not in network.buffers]
    if not floats:
        what = (
            "leaves no parameter that rounds could average"
            if field == "keeps"
            else "matches no parameter, only buffers"
        )
        raise PatternError(field, f"{what}; name fewer or others")
