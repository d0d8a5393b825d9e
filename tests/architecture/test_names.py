"""Names that two processes must agree on."""

from pathlib import Path

import pytest

from contract.queue import TASK_WORK
from contract.wire.problems import KINDS
from service.config import Settings
from service.infra.celery_app import make_celery
from worker import tasks


class _Idle:
    woken = 0

    def wake(self) -> None:
        self.woken += 1


def test_the_message_that_is_sent_has_a_task_and_each_installation_its_own(tmp_path: Path) -> None:
    runners = [_Idle(), _Idle()]
    apps = [make_celery(Settings(home=tmp_path)) for _ in runners]
    for app, runner in zip(apps, runners, strict=True):
        tasks.register(app, runner)
    apps[1].tasks[TASK_WORK].run()
    assert [runner.woken for runner in runners] == [0, 1]


def test_celery_takes_json_only(tmp_path: Path) -> None:
    conf = make_celery(Settings(home=tmp_path)).conf
    assert conf.accept_content == ["json"]
    assert conf.task_serializer == "json"


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_problem_kinds_are_documented(kind: str) -> None:
    text = (Path(__file__).parents[2] / "docs" / "problems.md").read_text()
    assert f"`{kind}`" in text
