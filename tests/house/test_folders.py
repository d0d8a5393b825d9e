"""Folders and tokens of another user, and file systems without locks: a line that says what to do."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from potstill import exits
from potstill.console import CliError
from potstill.home import Home
from tests.house.command_line import call

ROOT = Path(__file__).resolve().parents[2]


def _denied(*_: Any, **__: Any) -> Any:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "the file")


def test_a_folder_of_another_user_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path / "home")
    home.make()
    monkeypatch.setattr("builtins.open", _denied)
    with pytest.raises(CliError, match=r"Permission denied; the folder is \w+'s; choose another folder with --home"):
        home.lock()


def test_a_token_of_another_user_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POTSTILL_HOME", str(tmp_path))
    monkeypatch.delenv("POTSTILL_TOKEN", raising=False)
    (tmp_path / "operator.token").mkdir()
    result = call("federation", "list")
    assert result.exit_code == exits.HERE
    assert "operator.token cannot be read by this user" in result.stderr and "POTSTILL_TOKEN" in result.stderr


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK])
def test_up_on_a_file_system_without_locks_is_a_line(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", none)
    home = Home(tmp_path / "home")
    home.make()
    with pytest.raises(CliError, match="file system without locks .*--home"):
        home.lock()


def test_a_file_that_a_command_cannot_read_is_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("potstill.commands.config.load_settings", _denied)
    result = call("config")
    assert result.exit_code == exits.HERE
    assert "the file: Permission denied; run this as the user whose it is" in result.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_somebody_without_a_home_in_a_folder_of_root(tmp_path_factory: pytest.TempPathFactory) -> None:
    import shutil
    import tempfile

    place = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        place.chmod(0o755)
        (place / "rooted").mkdir(mode=0o755)
        (place / "rooted" / "operator.token").write_text("x")
        (place / "rooted" / "operator.token").chmod(0o600)
        program = (
            "import os, sys; from potstill.home import Home; from potstill.console import CliError\n"
            "from pathlib import Path; from client_sdk.state import default_folder\n"
            "os.setgroups([]); os.setgid(12345); os.setuid(12345)\n"
            "home = Home(Path(sys.argv[1]))\n"
            "folder = lambda: default_folder('http://h', 'fed_1', None)\n"
            "for act in (home.lock, lambda: home.read(home.token_file), folder):\n"
            "    try: act()\n"
            "    except Exception as error: print(type(error).__name__)\n"
        )
        told = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_STATE_HOME")}
        done = subprocess.run(
            [sys.executable, "-c", program, str(place / "rooted")],
            env=told | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert done.stdout.split() == ["CliError", "CliError", "StateError"], done.stderr
    finally:
        shutil.rmtree(place)
