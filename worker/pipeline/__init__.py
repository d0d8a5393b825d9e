"""The recipe interpreter: a job's description in, files and figures out. No database, no network.

torch is imported only by jobs that run a network: a round that only averages never loads it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from contract.networks import shelf
from worker.checkpoints import Checkpoints
from worker.pipeline.blame import as_job_failures, with_the_sound
from worker.specs import (
    GeneratorSpec,
    Handover,
    InitializeSpec,
    JobResult,
    JobSpec,
    LabelsSpec,
    PredictSpec,
    Progress,
    RoundSpec,
    ScoreSpec,
)


@dataclass(frozen=True)
class _Surroundings:
    """What `run` is given beside the job."""

    progress: Callable[[Progress], None]
    device: str
    checkpoints: Checkpoints | None
    hand_over: Callable[[Handover], None] | None


def run(
    spec: JobSpec,
    progress: Callable[[Progress], None],
    *,
    device: str = "cpu",
    checkpoints: Checkpoints | None = None,
    hand_over: Callable[[Handover], None] | None = None,
) -> JobResult:
    """Do one job. The same specification gives the same bytes, on one kind of device with one number of threads.

    Args:
        spec: what to do; its output_dir is made if need be.
        progress: called often, from this thread.
        device: torch device for networks, such as 'cpu' or 'cuda'.
        checkpoints: what an earlier attempt left, and where this one leaves its own; the result is the same.
        hand_over: called at most once, with what a round need not end for; None when nobody waits for it.

    Raises:
        JobFailure: the job cannot be done, whoever tries; its code is stable.
    """
    spec.output_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, files in spec.networks.items():
        shelf.place(name, shelf.Files(files.document, files.weights))
    with as_job_failures():
        return _DOES[spec.kind](spec, _Surroundings(progress, device, checkpoints, hand_over))


def _initialize(spec: InitializeSpec, given: _Surroundings) -> JobResult:
    if not spec.needs_networks:
        from worker.pipeline.given import take_all

        return take_all(spec, given.progress)
    from worker.pipeline.stages import initialize

    return initialize(spec, given.progress, given.device)


def _train_generator(spec: GeneratorSpec, given: _Surroundings) -> JobResult:
    from worker.pipeline.stages import train_generator

    return train_generator(spec, given.progress, given.device, given.checkpoints)


def _score(spec: ScoreSpec, given: _Surroundings) -> JobResult:
    from worker.pipeline.stages import score

    return score(spec, given.progress, given.device, given.checkpoints)


def _fuse(spec: RoundSpec, given: _Surroundings) -> JobResult:
    from worker.pipeline.rounds import fuse_round

    def fuse(wanted: RoundSpec) -> JobResult:
        """Fuse; a checkpoint is of all clients, so it is of no use without one."""
        checkpoints = given.checkpoints if wanted is spec else None
        return fuse_round(wanted, given.progress, given.device, checkpoints, given.hand_over)

    return with_the_sound(spec, fuse)


def _label_shard(spec: LabelsSpec, given: _Surroundings) -> JobResult:
    from worker.pipeline.shards import label_shard

    return label_shard(spec, given.progress, given.device)


def _predict(spec: PredictSpec, given: _Surroundings) -> JobResult:
    from worker.pipeline.predicting import predict

    return predict(spec, given.progress, given.device, given.checkpoints)


_DOES: Mapping[str, Callable[[Any, _Surroundings], JobResult]] = {
    "initialize": _initialize,
    "generator": _train_generator,
    "score": _score,
    "round": _fuse,
    "labels": _label_shard,
    "predict": _predict,
}
"""Kind of job (`contract.jobs`) -> what does it."""
