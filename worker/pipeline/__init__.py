"""The recipe interpreter: a job's description in, files and figures out. No database, no network.

torch is imported only by jobs that run a network: a round that only averages never loads it.
"""

from collections.abc import Callable

from worker.checkpoints import Checkpoints
from worker.pipeline.blame import as_job_failures, with_the_sound
from worker.specs import (
    GeneratorSpec,
    Handover,
    InitializeSpec,
    JobResult,
    JobSpec,
    Progress,
    RoundSpec,
    ScoreSpec,
)


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
    spec.output_dir.mkdir(parents=True, exist_ok=True)
    with as_job_failures():
        return _dispatch(spec, progress, device, checkpoints, hand_over)


def _dispatch(
    spec: JobSpec,
    progress: Callable[[Progress], None],
    device: str,
    checkpoints: Checkpoints | None,
    hand_over: Callable[[Handover], None] | None,
) -> JobResult:
    if isinstance(spec, InitializeSpec):
        from worker.pipeline.stages import initialize

        return initialize(spec, progress, device)
    if isinstance(spec, GeneratorSpec):
        from worker.pipeline.stages import train_generator

        return train_generator(spec, progress, device, checkpoints)
    if isinstance(spec, ScoreSpec):
        from worker.pipeline.stages import score

        return score(spec, progress, device, checkpoints)
    from worker.pipeline.rounds import fuse_round

    def fuse(wanted: RoundSpec) -> JobResult:
        """Fuse; a checkpoint is of all clients, so it is of no use without one."""
        return fuse_round(wanted, progress, device, checkpoints if wanted is spec else None, hand_over)

    return with_the_sound(spec, fuse)
