"""When several workers share a round's labels, and in which shards. Figures in, shards out; no database, no clock."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MOST = 256
"""Shards of a round."""
STORE_BYTES_PER_SECOND = 50e6
"""What a store is trusted with, one way: a bucket over a network of a gigabit does twice as much."""
_OF_THE_TIME = 4
"""Labels that would be under way for more than this part of the time of making them are made where they are read."""


@dataclass(frozen=True)
class Shard:
    """What one job asks: some teachers, of one part of every set."""

    teachers: tuple[str, ...]
    part: int = 0
    parts: int = 1


def seconds_of_a_teacher(rounds: Sequence[Mapping[str, Any]]) -> float | None:
    """Return what a teacher has cost in earlier rounds, asked of every sample once; None where nobody measured it.

    The most of what was measured: a round that went on from an earlier attempt's labels took less than it costs.

    Args:
        rounds: figures of the newest rounds.
    """
    found = []
    for figures in rounds:
        labels = figures.get("labels", {})
        teachers = labels.get("asked") or figures.get("ensemble", {}).get("teachers", 0)
        seconds = labels["seconds"] if "asked" in labels else figures.get("seconds", {}).get("label")
        if teachers and seconds is not None:
            found.append(seconds / teachers)
    return max(found, default=None)


def was_in_vain(figures: Mapping[str, Any]) -> bool:
    """Whether a round's job asked most teachers itself although others had: workers of different kinds, or versions."""
    labels = figures.get("labels", {})
    return 2 * int(labels.get("here", 0)) > int(labels.get("teachers", 0)) > 0


def left_out(figures: Mapping[str, Any]) -> list[str]:
    """Return whom a round found no better than chance: the next one's job asks them itself, should they count by then.

    Who counts is known when each was measured on the validation set, which is the round's job, after its shards.
    """
    return list(figures.get("drop_worst", {}).get("dropped", ()))


def shards(teachers: Sequence[str], seconds: float, size: int, shard_seconds: float, workers: int) -> list[Shard]:
    """Return the shards of a round's labels, of about equal cost; none where one job makes them.

    Args:
        teachers: that can be asked before the round is fused.
        seconds: of one teacher.
        size: bytes of what one says.
        shard_seconds: about how long one shard is to take; 0: nothing is shared.
        workers: that would do them.
    """
    cost, way = len(teachers) * seconds, len(teachers) * size / STORE_BYTES_PER_SECOND
    if workers < 2 or not shard_seconds or cost < 2 * shard_seconds or _OF_THE_TIME * way > cost:
        return []
    count = workers * math.ceil(min(cost / shard_seconds, MOST) / workers)
    if count > len(teachers):
        parts = math.ceil(count / len(teachers))
        return [Shard((each,), part, parts) for each in teachers for part in range(parts)]
    ends = [len(teachers) * each // count for each in range(count + 1)]
    return [Shard(tuple(teachers[first:last])) for first, last in zip(ends, ends[1:], strict=False)]
