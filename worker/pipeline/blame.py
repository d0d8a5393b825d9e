"""Whose fault a failure is, and what follows from it where the federation leaves bad teachers out (algorithms, 0.6)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

import numpy as np

from contract.packages import PluginError, PluginFault
from contract.tensors import FLOATS, TensorError, TensorFile
from worker import limits
from worker.parts.errors import PartError
from worker.specs import JobFailure, JobResult, RoundSpec, UpdateSpec

_FAR = 1e6
"""An update whose largest value exceeds the others' by this factor is no neighbour of theirs."""
_STABLE = frozenset({"non_finite", "no_positive_weight", "schema_mismatch", "no_participants"})


@contextmanager
def as_job_failures() -> Iterator[None]:
    """Give the refusals of parts and files the code of a job's failure."""
    try:
        yield
    except PartError as error:
        code = error.code if error.code in _STABLE else "bad_option"
        raise JobFailure(code, error.detail) from error
    except PluginError as error:
        raise JobFailure("missing_package", str(error)) from error
    except PluginFault as error:
        cause = error.__cause__
        if cause is not None and _is_machine_s(cause):
            raise cause from None
        raise JobFailure("plugin_failed", str(error)) from error
    except TensorError as error:
        raise JobFailure("non_finite" if error.code == "values" else "schema_mismatch", error.detail) from error


def _is_machine_s(error: BaseException) -> bool:
    """Whether an error would have met whatever code ran: no memory, no room, a disk that fails.

    A file that is not there is one of the package's own: the job's were looked at.
    """
    if isinstance(error, FileNotFoundError | PermissionError):
        return False
    return limits.is_out_of_memory(error) or limits.is_disk_full(error) or limits.is_storage_fault(error)


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
            with as_job_failures():
                result = fuse(spec)
        except JobFailure as failure:
            if failure.code == "non_finite" and failure.client is None:
                failure = _attributed(failure, spec.updates)
            if spec.on_bad_teacher != "exclude" or failure.client is None:
                raise failure
            excluded[failure.client] = f"{failure.code}: {failure.detail}"
            left = [each for each in spec.updates if each.client != failure.client]
            if len(left) < max(1, spec.min_updates):
                names = ", ".join(sorted(excluded))
                detail = f"{len(left)} of {spec.min_updates} updates are left without {names}: {failure.detail}"
                raise JobFailure("too_few_updates", detail) from failure
            spec = spec.model_copy(update={"updates": left})
            continue
        left_out = result.metrics.get("excluded", {}) | excluded
        return result.model_copy(update={"metrics": result.metrics | ({"excluded": left_out} if left_out else {})})


def _attributed(failure: JobFailure, updates: list[UpdateSpec]) -> JobFailure:
    """Return a failure that names the client whose values are out of all proportion to the others', if there is one.

    Finite values can overflow only when they are fused: in the moments of a server's optimiser, or in the forward pass
    of the mean. The average does not say whose they were.
    """
    if len(updates) < 2:
        return failure
    sizes = {update.client: _largest(update) for update in updates}
    worst = max(sorted(sizes), key=lambda client: sizes[client])
    usual = float(median([size for client, size in sizes.items() if client != worst]))
    if sizes[worst] <= _FAR * max(usual, float(np.finfo(np.float32).tiny)):
        return failure
    detail = (
        f"{failure.detail} Client {worst!r} sent values up to {sizes[worst]:.3g}, the others' median is {usual:.3g}"
    )
    return JobFailure(failure.code, detail, client=worst)


def _largest(update: UpdateSpec) -> float:
    """Return the largest absolute value of an update's float tensors, read one tensor at a time."""
    with TensorFile(update.weights) as file:
        floats = [name for name, info in file.header.tensors.items() if info.dtype in FLOATS and info.nbytes]
        return max((float(np.abs(file.read(name).astype(np.float64)).max()) for name in floats), default=0.0)
