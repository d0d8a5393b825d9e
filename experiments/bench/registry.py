"""The parts of `make bench`: each is one file whose `measure` yields figures."""

from collections.abc import Callable, Iterator
from importlib import import_module

from experiments.bench.measuring import Bench, Figure

PARTS = {
    "intake": "uploads, against a loop that writes, hashes and fsyncs",
    "average": "the mean of clients' files, against numpy and plain Python",
    "close": "from the last upload to the next model, and to the last device that knows",
    "rounds": "whole rounds over HTTP, against the bare reference service",
    "memory": "what large uploads take of the service's memory",
    "distillation": "teachers that label, a student that learns, against plain PyTorch",
    "device": "what a device trains, against loops by hand",
    "growth": "enrolment, uploads, close and memory with the number of clients",
    "startup": "imports, the command line, a service until it is healthy",
    "networks": "a network as a document's graph, against its module",
    "distances": "how far updates lie, beside averaging them",
    "inspection": "a round's job whose inputs are compared with their digests",
}
"""Name, and so file, of a part -> what it measures; in the order in which they run."""


def measure_of(part: str) -> Callable[[Bench], Iterator[Figure]]:
    """Return a part's function; its imports happen now."""
    found: Callable[[Bench], Iterator[Figure]] = import_module(f"experiments.bench.{part}").measure
    return found
