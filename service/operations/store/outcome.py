"""What a worker hands over when a job is done."""

from dataclasses import dataclass, field
from typing import Any

from contract.wire.ensembles import Member


@dataclass(frozen=True)
class Outcome:
    """What a job made; the files are blobs already.

    `files` maps a prototype's name, `generator`, or a client's name to (digest, size); `state` is all that the recipe
    hands to the next round, or None to leave it as it is; `ensemble` who predicts together, where a round keeps that.
    `origin` is the worker's account of what it was told and ran.
    """

    files: dict[str, tuple[str, int]]
    metrics: dict[str, Any] = field(default_factory=dict)
    peak_memory_bytes: int | None = None
    device: str | None = None
    state: dict[str, tuple[str, int]] | None = None
    ensemble: list[Member] | None = None
    resumed_from: dict[str, Any] | None = None
    origin: dict[str, Any] | None = None
    provenance_id: str | None = None

    @property
    def member_digests(self) -> set[str]:
        """The digests of an ensemble's members."""
        return {member.network.digest for member in self.ensemble or ()}
