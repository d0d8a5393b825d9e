"""Data of a newer program, an older one, another one, none: one sentence in every command and process."""

import asyncio
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from typer.testing import CliRunner

from potstill.cli import app
from service.app import create_app
from service.config import Settings
from service.persistence import migrate, schema

COMMANDS = [
    ["migrate"], ["up", "--port", "0"], ["verify"], ["gc"], ["backup", "b"], ["replay", "x:1"], ["worker-health"],
    ["token", "create", "--name", "me", "--local"],
]  # fmt: skip
NEWER = "this program is older than its data"
OLDER = "the data is older than this program"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("made")
    migrate.upgrade(Settings(home=home, database_url=None))
    return home / "potstill.db"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Path) -> Path:
    place = tmp_path / "home"
    place.mkdir(mode=0o700)
    shutil.copy(made, place / "potstill.db")
    monkeypatch.setenv("POTSTILL_HOME", str(place))
    for name in ("DATABASE_URL", "BLOB_URL", "BLOB_DIR"):
        monkeypatch.delenv(f"POTSTILL_{name}", raising=False)
    monkeypatch.chdir(tmp_path)
    return place


def say(home: Path, revision: str | None, also: str = "SELECT 1") -> None:
    """Let a database say that it is at some revision."""
    engine = create_engine(Settings(home=home, database_url=None).resolved_database_url)
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM alembic_version"))
        if revision is not None:
            connection.execute(text("INSERT INTO alembic_version VALUES (:revision)"), {"revision": revision})
        connection.execute(text(also))
    engine.dispose()


def refused(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert (result.exit_code, isinstance(result.exception, SystemExit)) == (1, True), (words, result.exception)
    assert "Traceback" not in result.output
    lines = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, result.stderr
    return lines[0]


@pytest.mark.parametrize("revision", ["9999", "f00dfeed"])
def test_every_command_says_so_of_a_newer_schema(home: Path, revision: str) -> None:
    say(home, revision)
    said = {refused(*words) for words in COMMANDS}
    assert len(said) == 1, said
    (line,) = said
    assert NEWER in line
    assert revision in line
    assert schema.revisions()[-1] in line
    assert "Install the version of potstill that was here before, or restore a backup" in line


def test_every_command_but_two_says_of_an_older_one_what_brings_it_up(home: Path) -> None:
    say(home, "0001")
    said = {refused(*words) for words in COMMANDS if words[0] not in ("migrate", "up")}
    (line,) = said
    assert OLDER in line
    assert "run 'potstill migrate'" in line


def test_a_database_of_another_program_is_left_alone(home: Path) -> None:
    say(home, None)
    said = {refused(*words) for words in COMMANDS}
    (line,) = said
    assert "does not say that they are potstill's" in line


def test_two_schemas_at_once_are_none(home: Path) -> None:
    say(home, "0001", "INSERT INTO alembic_version VALUES ('0002')")
    assert "at 2 schemas at once" in refused("migrate")


def test_a_backup_of_a_newer_program_is_not_restored(home: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["backup", str(tmp_path / "copy.tar")])
    assert result.exit_code == 0, result.output
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patch:  # a program that knows less
        patch.setattr(schema, "revisions", lambda: ["0001", "0002"])
        line = refused("restore", str(tmp_path / "copy.tar"), "--home", str(tmp_path / "new"))
    assert NEWER in line
    assert "copy.tar" in line
    assert list((tmp_path / "new").iterdir()) == []


def test_the_service_does_not_start_and_says_it_in_one_line(home: Path) -> None:
    say(home, "9999")
    service, sent = create_app(Settings(home=home, database_url=None)), list[Any]()

    async def start() -> None:
        async def receive() -> dict[str, str]:
            return {"type": "lifespan.startup"}

        async def send(message: Any) -> None:
            sent.append(message)

        await service({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send)

    asyncio.run(start())
    service.state.services.database.close()
    (message,) = sent
    assert message["type"] == "lifespan.startup.failed"
    assert message["message"].startswith(NEWER)
    assert "\n" not in message["message"]


def test_a_worker_does_not_begin_and_says_it_in_one_line(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from worker import app as worker

    say(home, "9999")
    monkeypatch.setattr(worker, "settings", Settings(home=home, database_url=None))
    with caplog.at_level(logging.CRITICAL, "worker.app"), pytest.raises(SystemExit) as ended:
        worker._init()
    assert ended.value.code == 1
    (record,) = [each for each in caplog.records if each.levelno == logging.CRITICAL]
    assert NEWER in record.getMessage()
    assert not record.exc_info
