"""How far each update lies from the round's model: in the round's figures, and above a limit left out.

Where nobody can be left out for it, a mean measures the updates while it reads them; else, and where no mean has, they
are read for it.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from worker.parts.blocks import MOST_OPEN, Source
from worker.parts.distances import Distance, Meter, measure_files, outliers, too_far
from worker.pipeline.job import Round
from worker.specs import JobFailure


def look_over(job: Round) -> None:
    """Measure every update that holds weights against the model that it started from, and leave out what is too far.

    Once in a job.

    Figures: `distances` per client (`distance`, `relative`, `norm_ratio`), `outliers` and `excluded` with the reason.

    Raises:
        JobFailure: too_few_updates, when fewer than `min_updates` are left.
    """
    if job.measured is None or not job.spec.local.objective.sends_weights:
        return
    measured, job.measured = job.measured, None
    figures: dict[str, Any] = {}
    standing_out: dict[str, str] = {}
    excluded: dict[str, str] = {}
    alive = _now_and_then(job.phases.alive)
    to_read = job.updates.keys() - measured.keys()
    with job.phases.phase("distances") if to_read else nullcontext():
        for name in job.updates:
            found = _measured(job, name, alive) if name in to_read else measured[name]
            figures |= {client: _figures(each) for client, each in found.items()}
            standing_out |= outliers(found, starts_at_model=job.spec.local.objective.starts_at_model)
            if job.spec.max_distance is not None:
                excluded |= too_far(found, job.spec.max_distance)
    named = {"distances": figures, "outliers": standing_out, "excluded": excluded}
    job.metrics |= {name: value for name, value in named.items() if value}
    if excluded:
        _leave_out(job, excluded)


def measuring(job: Round, prototype: str, sources: Sequence[Source]) -> Meter | None:
    """Return what measures a prototype's updates while their mean is made; None where it is not to, or cannot."""
    base = job.prototype(prototype).network.weights
    all_count = all(source.weight > 0 for source in sources) and len(sources) <= MOST_OPEN
    wanted = job.measured is not None and job.spec.local.objective.sends_weights
    return Meter(base) if wanted and all_count and base is not None else None


def _now_and_then(tell: Callable[[], None]) -> Callable[[], None]:
    """Return what tells once a second, however often it is called: blocks are many, and each is done in a moment."""
    told = time.monotonic()

    def call() -> None:
        nonlocal told
        if time.monotonic() - told >= 1:
            told = time.monotonic()
            tell()

    return call


def _measured(job: Round, prototype: str, alive: Callable[[], None]) -> dict[str, Distance]:
    base = job.prototype(prototype).network.weights
    if base is None:
        return {}
    sources = [Source(each.client, each.weights, 1) for each in job.updates[prototype]]
    return measure_files(sources, base, alive)


def _figures(each: Distance) -> dict[str, float]:
    found = {"distance": each.distance, "relative": each.relative, "norm_ratio": each.norm_ratio}
    return {name: value for name, value in found.items() if value is not None}


def _leave_out(job: Round, excluded: dict[str, str]) -> None:
    kept = {
        name: stay
        for name, updates in job.updates.items()
        if (stay := [each for each in updates if each.client not in excluded])
    }
    left = sum(map(len, kept.values()))
    if left < max(1, job.spec.min_updates):
        names = "; ".join(f"{client}: {why}" for client, why in sorted(excluded.items()))
        detail = f"{left} of {job.spec.min_updates} updates are left without those that are too far: {names}"
        raise JobFailure("too_few_updates", detail)
    job.updates = kept
