"""What `potstill up` says, and hands on, before anything is started."""

import os
from pathlib import Path
from typing import Any

import pytest

from contract.programs import LEAN
from potstill import up
from potstill.console import CliError
from potstill.up import UpOptions, bind, programs
from service.config import Settings


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """`up` tells its children through the environment; a test's goes with the test."""
    monkeypatch.setattr(os, "environ", {n: v for n, v in os.environ.items() if not n.startswith("POTSTILL_")})


def test_the_address_is_said_before_the_database_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def slow(settings: Any) -> None:
        raise CliError("here it would take its time")

    monkeypatch.setattr("potstill.storage.acts.bring_up", slow)
    with pytest.raises(CliError, match="its time"):
        up.run(UpOptions(home=tmp_path / "home", port=0))
    said = capsys.readouterr().out
    assert said.startswith("potstill  http://127.0.0.1:") and str(tmp_path / "home") in said
    assert not (tmp_path / "home" / "url").exists()


def test_what_is_not_installed_is_said_before_a_folder_is_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("potstill.up.find_spec", lambda name: None if name == "celery" else name)
    with pytest.raises(CliError, match=r"celery is not installed; pip install '\.\[worker\]'"):
        up.run(UpOptions(home=tmp_path / "home"))
    assert not (tmp_path / "home").exists()


def test_the_programs_log_what_the_setting_says(tmp_path: Path) -> None:
    with bind("127.0.0.1", 0) as listener:
        api, alone = programs(listener, Settings(home=tmp_path, log_level="warning", broker_url=None))
        _, celery = programs(listener, Settings(home=tmp_path, log_level="warning", broker_url="redis://127.0.0.1"))
    assert api.argv[api.argv.index("--log-level") + 1] == "warning"
    assert "--loglevel=WARNING" in celery.argv
    assert alone.argv[-2:] == ["worker", "alone"], "it reads the setting by itself"
    assert alone.probed and celery.probed


def test_the_children_keep_little_memory_that_they_do_not_need(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told: list[Any] = []
    monkeypatch.setenv("MALLOC_ARENA_MAX", "8")  # a user's choice stays
    monkeypatch.setattr("potstill.storage.acts.bring_up", lambda settings: told.append(dict(os.environ)))
    monkeypatch.setattr("service.operations.access.tokens.ensure_operator_token", lambda settings: None)
    monkeypatch.setattr(up, "become", lambda plan, kept: told.append(plan))
    up.run(UpOptions(home=tmp_path / "home", port=0))
    assert {name: told[0].get(name) for name in LEAN} == LEAN | {"MALLOC_ARENA_MAX": "8"}
