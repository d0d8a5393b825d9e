"""What a teacher costs, seen from a job's progress."""

from worker.pace import Pace
from worker.specs import Progress


def test_it_is_told_once_when_enough_has_been_seen() -> None:
    """The second teacher is done 3 s after the first began: 1.5 s each."""
    pace = Pace()
    told = [("average", 1, 0.0), ("label", 0, 10.0), ("label", 1, 11.0), ("label", 2, 13.0), ("label", 3, 20.0)]
    assert [pace.of(Progress(phase=phase, step=step, of=9), at) for phase, step, at in told] == [None] * 3 + [1.5, None]


def test_teachers_that_an_earlier_attempt_asked_do_not_count() -> None:
    pace = Pace()
    assert pace.of(Progress(phase="label", of=9), 0.0) is None
    assert pace.of(Progress(phase="label", step=6, of=9, resumed=True), 5.0) is None
    assert pace.of(Progress(phase="label", step=7, of=9), 9.0) == 4.0
