"""The clock of an installation goes back and ahead in mid-job: who lives keeps its job, who is dead does not."""

import os
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.chaos.test_breaks import PATIENCE, distilling, published, round_job
from tools.deployment import Deployment, wait_for

pytestmark = pytest.mark.timeout(600)
SOON = 60.0  # a lease of two seconds, the patience of the service's clock, and a slow machine
DAY = 86_400


def checks(deployment: Deployment) -> tuple[int, dict[str, Any]]:
    answer = httpx.get(f"{deployment.url}/readyz", timeout=10)
    return answer.status_code, answer.json()["checks"]


def move(file: Path, seconds: int) -> None:
    """Move the clock of all programs at once."""
    fresh = file.with_suffix(".new")
    fresh.write_text(str(seconds))
    os.replace(fresh, file)


@pytest.mark.chaos
def test_jobs_go_on_through_steps_of_the_clock(tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    deployment = Deployment(tmp_path / "home", constants={"clock": str(clock)})
    try:
        deployment.start_api()
        deployment.start_worker()
        created = distilling(deployment, tmp_path, "steps", 20_000)
        for seconds in (-DAY, 0, DAY, DAY - 3600):  # back and ahead, with a worker that lives
            move(clock, seconds)
            wait_for(lambda: checks(deployment)[0] == 200, SOON, "the worker is not heard after a step")
            time.sleep(5)
            job = round_job(deployment, created)
            assert (job.state, job.attempt) == ("running", 1), (seconds, job)
            listed = deployment.operator.federation(created.id)
            assert listed.state == "running"
        assert "the clock went back" in checks(deployment)[1]["clock"]["detail"]
        deployment.kill("worker")
        move(clock, DAY - 2 * 3600)
        wait_for(lambda: "clock went back" in checks(deployment)[1]["worker"]["detail"], SOON, "nobody says so")
        assert checks(deployment)[0] == 503, "a worker that is dead is not green by mistake"
        deployment.start_worker("second")
        begun = time.monotonic()
        wait_for(lambda: round_job(deployment, created).attempt == 2, SOON, "the job of the dead is not taken over")
        assert time.monotonic() - begun < SOON
        wait_for(lambda: published(deployment, created), 2 * PATIENCE, "no model comes")
    finally:
        deployment.close()
