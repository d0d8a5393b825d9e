"""Whose fault a failure is, and what follows from it where the federation leaves bad teachers out (algorithms, 0.6)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from worker.specs import JobFailure, JobResult, RoundSpec


@contextmanager
def blame(client: str | None) -> Iterator[None]:
    """Say of a failure for values that are not finite whose update it comes from; None blames nobody."""
    try:
        yield
    except JobFailure as failure:
        if failure.code == "non_finite" and failure.client is None:
            failure.client = client
        raise


def with_the_sound(spec: RoundSpec, fuse: Callable[[RoundSpec], JobResult]) -> JobResult:
    """Fuse a round; where the plan says so, do it again without a client whose network gives NaN or infinity.

    Such a client is in no average either: the round is as if it had not answered. Every sample is still labelled once
    by each teacher that counts.

    Figures: `excluded`, reason per client.

    Raises:
        JobFailure: as `fuse`; too_few_updates when fewer than `min_updates` are left.
    """
    excluded: dict[str, str] = {}
    while True:
        try:
            result = fuse(spec)
        except JobFailure as failure:
            if spec.on_bad_teacher != "exclude" or failure.client is None:
                raise
            excluded[failure.client] = f"{failure.code}: {failure.detail}"
            left = [each for each in spec.updates if each.client != failure.client]
            if len(left) < max(1, spec.min_updates):
                names = ", ".join(sorted(excluded))
                detail = f"{len(left)} of {spec.min_updates} updates are left without {names}: {failure.detail}"
                raise JobFailure("too_few_updates", detail) from failure
            spec = spec.model_copy(update={"updates": left})
            continue
        return result.model_copy(update={"metrics": result.metrics | ({"excluded": excluded} if excluded else {})})
