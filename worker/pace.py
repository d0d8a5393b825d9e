"""How fast a round's job asks its teachers, seen from outside while it does."""

from worker.specs import Progress

LEAST_SECONDS = 2.0
"""Less says nothing: the first teacher warms caches, and is built."""


class Pace:
    """Looks at a job's progress and says once what a teacher costs."""

    def __init__(self) -> None:
        self._begun: tuple[float, int] | None = None
        self._told = False

    def of(self, progress: Progress, moment: float) -> float | None:
        """Return the seconds of one teacher, when they are first known; None before, and afterwards.

        Args:
            progress: what the job says.
            moment: when, in seconds of any clock that goes on.
        """
        if progress.phase != "label" or self._told:
            return None
        if self._begun is None or progress.resumed:
            self._begun = (moment, progress.step)
        began, step = self._begun
        if progress.step == step or moment - began < LEAST_SECONDS:
            return None
        self._told = True
        return (moment - began) / (progress.step - step)
