"""A federation is shown with its task's own figures, whatever kind it is of."""

import pytest

from contract.tasks import TASKS, TaskKind
from contract.wire.federations import Task
from service.operations.view import federations


@pytest.mark.parametrize("kind", TASKS)
def test_all_of_the_task_s_own_figures_are_shown_and_no_others(kind: TaskKind) -> None:
    shape = {"dense": [1, 4, 4], "tokens": [4]}.get(kind, [2])
    task = Task.model_validate(
        {"kind": kind, "num_classes": 2, "input": {"shape": shape, "dtype": "int64" if kind == "tokens" else "float32"}}
    )
    own = {metric.name: 0.5 for metric in TASKS[kind].metrics}
    metrics = {"model": {"measures": {"main": own | {"by_class": [1, 2]}, "small": dict.fromkeys(own)}}}
    assert federations._figures(task, metrics) == {"main": own, "small": {}}
    assert federations._figures(task, {}) == federations._figures(task, {"model": None}) == {}
