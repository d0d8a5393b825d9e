"""Folders whose names mean something in a URL, a shell or a terminal: everything lies in them, and nothing beside."""

import os
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from client_sdk.transport import segment
from potstill.cli import app
from service.config import Settings
from service.persistence import migrate

NAMES = ["what?mode=memory#a%3F&b", '--it\'s "so"  $HOME;x\\y', "[red]Füße 模型:smile:[-]", "file:x?uri=true"]


def run(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


@pytest.fixture(autouse=True)
def _no_other_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("POTSTILL_")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize("name", NAMES)
def test_an_installation_lies_in_its_folder_whatever_that_is_called(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, copy, again = (tmp_path / part / name for part in ("home", "copy", "again"))
    for folder in (home, copy, again):
        folder.parent.mkdir()
    monkeypatch.setenv("POTSTILL_HOME", str(home))
    run("migrate")
    assert "operator" in run("token", "create", "--name", "me", "--role", "operator", "--local")
    assert "whole" in run("verify")
    assert name in run("backup", str(copy))
    told = run("restore", str(copy), "--home", str(again))
    assert f"{again} is as it was" in told
    assert shlex.split(told.split("start it: ")[1].splitlines()[0]) == ["potstill", "up", "--home", str(again)]
    assert (home / "potstill.db").is_file()
    assert (again / "potstill.db").is_file()
    for folder in (home, copy, again):
        assert [path.name for path in folder.parent.iterdir()] == [name], "something lies beside it"


def test_two_folders_that_differ_after_a_question_mark_are_two_installations(tmp_path: Path) -> None:
    first, second = (Settings(home=tmp_path / f"what?{number}", database_url=None) for number in (1, 2))
    migrate.upgrade(first)
    with pytest.raises(migrate.SchemaError):
        migrate.check(second)
    migrate.upgrade(second)
    assert first.database_file != second.database_file
    assert sorted(path.name for path in tmp_path.iterdir()) == ["what?1", "what?2"]


def test_the_database_that_an_earlier_version_put_beside_such_a_folder_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "what?1"
    (tmp_path / "what").write_bytes(b"SQLite format 3\0")
    monkeypatch.setenv("POTSTILL_HOME", str(home))
    result = CliRunner().invoke(app, ["migrate"])
    assert result.exit_code == 1
    words = shlex.split(result.stderr.partition("then: ")[2])
    assert words[:3] == ["cp", str(tmp_path / "what"), str(home / "potstill.db")]
    assert not (home / "potstill.db").exists()


@pytest.mark.parametrize(
    "address", ["potstill", "postgres://x/y", "postgresql+psycopg://me:pa@ss@host:port/db", "foo://x"]
)
def test_an_address_that_is_none_is_refused_with_its_form_and_without_its_password(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POTSTILL_DATABASE_URL", address)
    result = CliRunner().invoke(app, ["migrate"])
    assert result.exit_code == 1
    assert "POTSTILL_DATABASE_URL must read postgresql+psycopg://" in result.stderr
    assert "pa@ss" not in result.output


@pytest.mark.parametrize("name", ["a/b", "what?x=1", "a#b", "100%", "ü"])
def test_an_id_stays_one_segment_of_a_path(name: str) -> None:
    assert not set("/?# ") & set(segment(name))
