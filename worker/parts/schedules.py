"""Schedules: how fast a student learns, and when it stops. Plain numbers in, plain numbers out."""

import math
from dataclasses import dataclass, replace

from contract.recipes.parts import Schedule
from worker.parts.arrays import option
from worker.parts.errors import PartError


def some_steps(total: int) -> int:
    """Return the length of a job, if it has one.

    Raises:
        PartError: no_steps (below 1).
    """
    if total < 1:
        raise PartError("no_steps", f"a job of {total} steps has no schedule; give at least 1")
    return total


def cosine_lr(lr0: float, step: int, total: int) -> float:
    """Return lr0/2 (1 + cos(pi step / total)) for the step with that 0-based index (FedDF 4.1); 0 at the end.

    Raises:
        PartError: no_steps (total below 1), out_of_range (step outside 0 to total), bad_option (lr0 not finite or
            negative).
    """
    option("lr0", lr0)
    some_steps(total)
    if not 0 <= step <= total:
        raise PartError("out_of_range", f"step {step} is outside 0 to {total}")
    return lr0 / 2 * (1 + math.cos(math.pi * step / total))


def learning_rate(schedule: Schedule, step: int, total: int, round_index: int, rounds_total: int) -> float:
    """Return the learning rate of one step of a distillation job.

    'cosine_per_job' falls from lr to 0 within the job (FedDF). 'cosine_across_rounds' is constant within a job: in
    round t of T it is lr/2 (1 + cos(pi (t - 1) / T)), so the first round has the full rate (FedGO E.2).

    Args:
        schedule: the recipe's schedule.
        step: 0-based.
        total: steps of the job.
        round_index: t, 1 for the first round.
        rounds_total: T.
    """
    lr = schedule.optimizer.lr
    if schedule.lr == "cosine_per_job":
        return cosine_lr(lr, step, total)
    if schedule.lr == "cosine_across_rounds":
        return cosine_lr(lr, min(round_index - 1, rounds_total), rounds_total)
    return lr


def steps_of(schedule: Schedule, samples: int) -> int:
    """Return the number of mini-batches of a job on `samples` samples.

    Raises:
        PartError: no_steps when there are no samples.
    """
    if samples < 1:
        raise PartError("no_steps", "the server set is empty; distillation needs at least one sample")
    if schedule.steps is not None:
        return some_steps(schedule.steps)
    return some_steps((schedule.epochs or 0) * batches_of(samples, schedule.batch_size))


def batches_of(samples: int, batch_size: int) -> int:
    """Return the number of mini-batches of one pass.

    A last batch of one sample is left out where it is not the only one: BatchNorm has no variance for it.
    """
    full, rest = divmod(samples, batch_size)
    return full + (1 if rest > (1 if full and batch_size > 1 else 0) else 0)


def samples_of(steps: int, samples: int, batch_size: int) -> int:
    """Return how many samples so many mini-batches have: some of them several times, where there are several passes."""
    a_pass = batches_of(samples, batch_size)
    passes, rest = divmod(steps, a_pass)
    return passes * min(samples, a_pass * batch_size) + rest * batch_size


@dataclass(frozen=True)
class Watch:
    """What early stopping remembers: the best figure so far, such as an accuracy, and the step it was seen at."""

    best: float = -math.inf
    best_step: int = 0

    def seen(self, step: int, accuracy: float) -> "Watch":
        """Return the watch after an evaluation; only a strictly greater figure is an improvement (FedDF 4.1).

        Raises:
            PartError: non_finite.
        """
        if not math.isfinite(accuracy):
            raise PartError("non_finite", f"the accuracy at step {step} is {accuracy}")
        return replace(self, best=accuracy, best_step=step) if accuracy > self.best else self

    def exhausted(self, step: int, patience: int) -> bool:
        """Whether `patience` steps have passed without an improvement."""
        return step - self.best_step >= patience


# ------------------------------------------------------------------------------------------------------------------ SWA
def swa_lr(lr_high: float, lr_low: float, cycle: int, step: int) -> float:
    """Return the cyclical learning rate of a step, counted from 1: (1 - t) high + t low, t = ((i - 1) mod c + 1) / c.

    Each cycle falls from nearly high to exactly low (Izmailov et al. 2018, section 3.1; FedBE 5.1).

    Raises:
        PartError: bad_option (a rate negative or not finite, cycle below 1), out_of_range (step below 1).
    """
    option("lr_high", lr_high)
    option("lr_low", lr_low)
    if cycle < 1:
        raise PartError("bad_option", f"a cycle of {cycle} steps; at least 1 is needed")
    if step < 1:
        raise PartError("out_of_range", f"step {step}; steps are counted from 1")
    t = ((step - 1) % cycle + 1) / cycle
    return (1.0 - t) * lr_high + t * lr_low


def swa_collects(cycle: int, start: int, step: int) -> bool:
    """Whether a snapshot is taken after a step, counted from 1: at the end of a cycle, strictly after `start`.

    Raises:
        PartError: bad_option (cycle below 1, start negative).
    """
    if cycle < 1 or start < 0:
        raise PartError("bad_option", f"cycle {cycle} must be at least 1 and start {start} at least 0")
    return step > start and step % cycle == 0
