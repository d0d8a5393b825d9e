"""A server that cannot begin says why in one line, with the remedy: uvicorn alone, a worker, and the command line."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from contract.programs import environment
from service.config import Settings
from service.persistence import migrate

UVICORN = ("uvicorn", "service.app:create_app", "--factory", "--port", "0")


def _newer(home: Path) -> None:
    with sqlite3.connect(home / "potstill.db") as link:
        link.execute("UPDATE alembic_version SET version_num = '9999'")


def _damaged(home: Path) -> None:
    (home / "potstill.db").write_bytes(b"no database at all" * 500)


def _refusal(home: Path, *command: str, **env: str) -> str:
    """Return what a program that must not begin writes to stderr; no traceback is in it."""
    told = {**environment(), "POTSTILL_HOME": str(home), **env}
    done = subprocess.run(
        [sys.executable, "-m", *command], env=told, capture_output=True, text=True, timeout=120, cwd=os.getcwd()
    )
    said = done.stdout + done.stderr
    assert done.returncode != 0, said
    assert "Traceback" not in said, said
    return " ".join(said.split())


@pytest.mark.parametrize(
    ("harm", "said"),
    [(_newer, "this program is older than its data"), (_damaged, "potstill restore BACKUP --home FOLDER")],
    ids=["newer", "damaged"],
)
def test_uvicorn_alone_refuses_a_database_that_is_not_its_own(tmp_path: Path, harm: object, said: str) -> None:
    migrate.upgrade(Settings(home=tmp_path))
    assert callable(harm)
    harm(tmp_path)
    assert said in _refusal(tmp_path, *UVICORN)


@pytest.mark.parametrize(
    "command",
    [
        UVICORN,
        ("celery", "-A", "worker.app", "worker", "--pool=threads"),
        ("worker", "alone"),
        ("potstill", "migrate"),
    ],
    ids=["api", "worker", "alone", "command"],
)
def test_options_that_postgresql_refuses_are_named(tmp_path: Path, postgres: str, command: tuple[str, ...]) -> None:
    env = {"POTSTILL_DATABASE_URL": postgres, "PGOPTIONS": "-c no_such_option=1", "POTSTILL_SECRET": "s" * 32}
    said = _refusal(tmp_path, *command, **env)
    assert "PGOPTIONS='-c no_such_option=1'" in said and "unset it" in said


@pytest.mark.parametrize("command", [UVICORN, ("potstill", "migrate")], ids=["api", "command"])
def test_a_profile_of_aws_that_is_not_there_is_named(tmp_path: Path, command: tuple[str, ...]) -> None:
    said = _refusal(tmp_path, *command, POTSTILL_BLOB_URL="s3://bucket/prefix", AWS_PROFILE="gone")
    assert "AWS_PROFILE='gone'" in said and "POTSTILL_S3_ACCESS_KEY" in said
