"""Kinds of jobs: what workers do. One row says what there is to know of a kind before it is done."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from contract.federation import FederationConfig
from contract.queue import JobName, Queue


@dataclass(frozen=True)
class JobKind:
    """A kind of job.

    Attributes:
        does: what it is for, in words.
        runs_networks: whether it runs networks for longer than it takes to build them.
        aside: whether it is beside its federation's course: done also when that is over, and failing by itself alone.
        helps: whether another job can do without it: it fails by itself alone, and goes with its federation.
    """

    does: str
    runs_networks: Callable[[FederationConfig], bool]
    aside: bool = False
    helps: bool = False


def _always(config: FederationConfig) -> bool:
    return True


def _never(config: FederationConfig) -> bool:
    return False


JOB_KINDS: Mapping[JobName, JobKind] = {
    "initialize": JobKind("makes a federation's first models", _never),
    "generator": JobKind("makes the generator, or averages a round of its training by the clients", _always),
    "score": JobKind("scores the server's samples with the clients' discriminators", _always),
    "round": JobKind("fuses a round", lambda config: config.runs_networks),
    "labels": JobKind("asks some of a round's teachers, for the job that fuses it", _always, helps=True),
    "predict": JobKind("predicts a data set with a model or a round's ensemble", _always, aside=True),
}


def is_aside(name: str) -> bool:
    """Whether a job is beside its federation's course."""
    return any(kind.aside for known, kind in JOB_KINDS.items() if known == name)


def fails_alone(name: str) -> bool:
    """Whether nothing waits for an operator when a job has failed for good."""
    return is_aside(name) or any(kind.helps for known, kind in JOB_KINDS.items() if known == name)


def queue_of(name: JobName, config: FederationConfig) -> Queue:
    """Return the queue in which a job waits; where it runs networks, the federation may choose."""
    if not JOB_KINDS[name].runs_networks(config):
        return "cpu"
    return "gpu" if config.queue == "auto" else config.queue
