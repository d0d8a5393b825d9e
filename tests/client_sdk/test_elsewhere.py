"""Devices where a system lacks something: locks, positional reads, a home folder, a terminal that knows UTF-8."""

import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk.errors import StateError
from client_sdk.progress import Progress
from client_sdk.state import StateFolder, default_folder
from contract.tensors import TensorFile, write_file

ROOT = Path(__file__).resolve().parents[2]
LACKING = """
import os, signal, sys
for module in ("fcntl", "resource", "pwd", "grp"):
    sys.modules[module] = None
for name in "pread preadv pwrite pwritev fork getuid geteuid killpg fchmod O_NOFOLLOW O_DIRECTORY".split():
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGKILL", "SIGHUP"):
    delattr(signal, name)
"""
ROUND = """
import sys
from pathlib import Path
import numpy as np
from client_sdk import train_and_push
from tests.client_sdk.conftest import FED, URL, FakeService

import httpx

folder = Path(sys.argv[1])
service = FakeService(folder / "service")
x = np.random.default_rng(0).normal(size=(20, 2)).astype("float32")
data = (x, (x[:, 0] > 0).astype("int64"))
http = httpx.Client(transport=httpx.MockTransport(service.handle))
report = train_and_push(
    URL, data, federation=FED, join_token="pst_join_1", name="a", state_dir=folder / "state", http_client=http
)
print(report.state, report.rounds_trained, len(service.updates))
"""


def test_a_whole_federation_without_what_windows_lacks(tmp_path: Path) -> None:
    (tmp_path / "service").mkdir()
    (tmp_path / "device.py").write_text(LACKING + ROUND, encoding="utf-8")
    told = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(tmp_path / "device.py"), str(tmp_path)]
    done = subprocess.run(command, env=told, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["finished", "2", "2"]


def test_commands_run_without_them_and_up_says_where_the_service_runs(tmp_path: Path) -> None:
    program = LACKING + "from potstill.cli import main\nsys.argv = ['potstill', *sys.argv[1:]]\nmain()\n"
    (tmp_path / "cli.py").write_text(program, encoding="utf-8")
    told = {**os.environ, "PYTHONPATH": str(ROOT)}

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, str(tmp_path / "cli.py"), *words]
        return subprocess.run(command, cwd=tmp_path, env=told, capture_output=True, text=True, timeout=120)

    assert run("client", "run", "--help").returncode == 0
    assert run("status", "--url", "http://127.0.0.1:9", "--token", "t").returncode == 7
    refused = run("up")
    assert refused.returncode == 1 and "the service runs on Linux and macOS" in refused.stderr
    assert refused.stderr.count("\n") == 1 and not (tmp_path / ".potstill").exists()


@pytest.fixture
def no_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pread", "preadv"):
        monkeypatch.delattr(os, name)


def test_tensors_are_read_without_positional_reads(tmp_path: Path, no_positions: None) -> None:
    arrays = {"a": np.arange(10_000, dtype="float32"), "b": np.ones((3, 5), "int64")}
    write_file(tmp_path / "m.safetensors", arrays, {})
    with TensorFile(tmp_path / "m.safetensors") as file:
        assert np.array_equal(file.read_block("a", 17, 1000), arrays["a"][17:1017])
        assert np.array_equal(file.read("b"), arrays["b"])
        os.truncate(tmp_path / "m.safetensors", 300)
        with pytest.raises(Exception, match="ended inside tensor 'a'"):
            file.read("a")


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_named_and_the_device_works(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", none)
    with StateFolder(tmp_path / "device").locked():
        assert "without locks" in caplog.text and str(tmp_path / "device") in caplog.text


def test_a_folder_that_is_in_use_is_still_refused(tmp_path: Path) -> None:
    again = StateFolder(tmp_path).locked()
    with StateFolder(tmp_path).locked(), pytest.raises(StateError, match="in use by another process"), again:
        pass


def test_what_cannot_be_read_or_written_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = StateFolder(tmp_path / "device")
    with folder.locked():
        (folder.path / "identity.json").mkdir()
    with pytest.raises(StateError, match=r"state_dir: .*identity\.json: Is a directory"), folder.locked():
        folder.identity()
    (tmp_path / "file").write_text("")
    below = StateFolder(tmp_path / "file" / "device").locked()
    with pytest.raises(StateError, match="cannot be written: Not a directory.*another state_dir"), below:
        pass


def test_without_a_home_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nobody)
    with pytest.raises(StateError, match="no home folder is known; pass state_dir="):
        default_folder("http://127.0.0.1:8080", "fed_1", None)
    monkeypatch.setenv("XDG_STATE_HOME", "/var/lib/x")
    assert default_folder("http://127.0.0.1:8080", "fed_1", None).is_relative_to("/var/lib/x")


class Gone(io.StringIO):
    encoding = "ascii"

    def write(self, text: str) -> int:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


@pytest.mark.parametrize("stream", [None, Gone(), io.TextIOWrapper(io.BytesIO(), encoding="ascii")])
def test_no_stderr_stops_the_training(stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    progress = Progress("bar")
    progress.say("Gerät→Süd: waiting")
    with progress.bar("Gerät→Süd round 1/2", 2) as done:
        done(1, 0.5)
        done(2, 0.25)
    with progress.sending("hoch →") as sent:
        sent(1, 2)
        sent(2, 2)
    if isinstance(stream, io.TextIOWrapper):
        stream.flush()
        shown = stream.buffer.getvalue().decode("ascii")
        assert "Ger?t?S?d: waiting" in shown and "loss 0.2500" in shown


def test_notes_of_a_device_with_a_name_of_any_script_are_utf_8(tmp_path: Path) -> None:
    from client_sdk.state import Identity

    folder = StateFolder(tmp_path)
    folder.remember(Identity(url="http://x", federation="fed_1", name="東", key="k"))
    assert json.loads((tmp_path / "identity.json").read_text(encoding="utf-8"))["name"] == "東"
