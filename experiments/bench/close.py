"""From a round's last receipt to the next: until a new model can be fetched, and until the last device knows."""

from collections.abc import Iterator

from experiments.bench.measuring import Bench, Figure, Pairs
from experiments.bench.payloads import SIZES
from experiments.bench.rounds import cell


def measure(bench: Bench) -> Iterator[Figure]:
    """Two figures, of one size of round each."""
    for size, clients in bench.pick((("S", 8), ("M", 4)), (("S", 8),)):
        ours, bare = cell(bench, size, clients, bench.pick(15, 5))
        what, against = f"{clients} clients, {SIZES[size]}", "the bare reference service"
        yield Figure(f"close, {what}", "s", against, Pairs.of(ours.close, bare.close))
        yield Figure(f"wake-up of all, {what}", "s", against, Pairs.of(ours.wake, bare.wake))
