"""The lines between a worker and its computing process: what one end writes the other reads."""

from pathlib import Path

import pytest

from contract.programs import LEAN
from worker.protocol import Answer, Failed, Terms, answer, answers, order, ordered
from worker.specs import CheckpointSpec, Handover, InitializeSpec, JobResult, Progress

SAID: list[Answer] = [
    Progress(phase="distil", step=3, of=9),
    Handover(models={"main~1": Path("a")}),
    JobResult(models={"main": Path("b")}, metrics={"weights": {"ü": 0.5}}),
    Failed(code="non_finite", detail="update of 'a':\nlook"),
]
JOB = {
    "kind": "initialize",
    "seed": 1,
    "task": {"num_classes": 3, "input": {"shape": [6]}},
    "prototypes": [],
    "output_dir": "out",
}


def test_every_answer_is_read_as_it_was_said() -> None:
    lines = [answer(said) for said in SAID]
    assert all(line.count("\n") == 1 for line in lines)
    assert list(answers(lines)) == SAID


def test_a_line_in_whose_middle_the_process_died_says_nothing() -> None:
    whole, cut = answer(SAID[0]), answer(SAID[1])[:-1]
    assert list(answers([whole, cut])) == SAID[:1]


@pytest.mark.parametrize(
    "checkpoints", [None, CheckpointSpec(folder=Path("states"), fence=2, every_seconds=1.5, max_bytes=9)]
)
def test_an_order_is_read_as_it_was_given(checkpoints: CheckpointSpec | None) -> None:
    read = ordered(order(JOB, checkpoints))
    assert (read.job, read.checkpoints) == (InitializeSpec.model_validate(JOB), checkpoints)


@pytest.mark.parametrize("line", ["", "{}", order({"kind": "paint"})])
def test_what_is_no_order_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        ordered(line)


def test_terms_are_told_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    terms = Terms("cuda:1", 3, 2**33, "json")
    for name, value in terms.environment().items():
        monkeypatch.setenv(name, value)
    assert Terms.told() == terms
    assert terms.environment()["OMP_WAIT_POLICY"] == "active", "what an operator has set stays"


def test_a_computing_process_keeps_its_memory_unless_somebody_else_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in LEAN.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")  # a user's
    assert {name: value for name, value in Terms().environment().items() if name in LEAN} == {"MALLOC_ARENA_MAX": "1"}
