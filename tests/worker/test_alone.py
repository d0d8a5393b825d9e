"""The worker without Celery, as a process of its own: it hears of jobs, and of its end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from contract.programs import environment
from contract.queue import celery_queue
from service.config import Settings
from service.infra.folder_queue import FolderQueue
from service.persistence import migrate


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = Settings(home=tmp_path / "home", broker_url=None, database_url=None, log_level="info")
    migrate.upgrade(made)
    return made


def workers(settings: Settings) -> int:
    engine = create_engine(settings.resolved_database_url)
    with engine.connect() as connection:
        found = connection.execute(text("SELECT count(*) FROM workers")).scalar_one()
    engine.dispose()
    return int(found)


def soon(what: Callable[[], bool], log: Path) -> None:
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.05)


@contextmanager
def alone(settings: Settings, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    told = environment() | {"POTSTILL_HOME": str(settings.home), "POTSTILL_LOG_LEVEL": "info", "TZ": "Asia/Tokyo"}
    command = [sys.executable, "-m", "worker", "alone"]
    with log.open("wb") as out, subprocess.Popen(command, env=told, stdout=out, stderr=out) as process:
        try:
            soon(lambda: workers(settings) == 1 or process.poll() is not None, log)
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_at_a_signal_and_says_goodbye(settings: Settings, tmp_path: Path, number: int) -> None:
    with alone(settings, tmp_path / "log") as process:
        process.send_signal(number)
        assert process.wait(30) == 0, (tmp_path / "log").read_text()
    assert workers(settings) == 0


def test_it_takes_what_comes_also_into_a_folder_that_was_wiped(settings: Settings, tmp_path: Path) -> None:
    folder, queue = settings.queue_dir / "messages", celery_queue("cpu")
    with alone(settings, tmp_path / "log"):
        for _ in range(2):
            FolderQueue(folder).put(queue, {})
            soon(lambda: not list(folder.glob("*.msg")), tmp_path / "log")
            for each in folder.iterdir():
                each.unlink()
            folder.rmdir()
            soon(folder.is_dir, tmp_path / "log")


def test_a_folder_that_cannot_be_looked_into_ends_nothing(settings: Settings, tmp_path: Path) -> None:
    settings.queue_dir.mkdir()
    (settings.queue_dir / "messages").write_text("a file")
    log = tmp_path / "log"
    with alone(settings, log) as process:
        soon(lambda: "cannot look into the queue folder" in log.read_text(), log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    line = next(each for each in log.read_text().splitlines() if "cannot look" in each)
    assert line.partition("ERROR/MainProcess] ")[0].strip("[: ").endswith("Z"), "times are UTC"
    assert os.path.exists(settings.queue_dir / "messages"), "what is not its own is left alone"
