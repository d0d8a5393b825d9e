"""Folders and files for their owner alone, whatever was there and whatever the umask is."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract import private
from contract.private import OpenToOthers, close_file, private_folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def _no_umask(tmp_path: Path) -> Iterator[None]:
    tmp_path.chmod(0o755)
    before = os.umask(0)
    yield
    os.umask(before)


def test_a_new_folder_is_closed_and_those_above_it_are_not_open_to_writing(tmp_path: Path) -> None:
    assert mode(private_folder(tmp_path / "a" / "b")) == 0o700
    assert mode(tmp_path / "a") == 0o755


@pytest.mark.parametrize("before", [0o755, 0o711, 0o700, 0o2755])
def test_one_that_others_can_read_is_closed(tmp_path: Path, before: int) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    folder.chmod(before)
    private_folder(folder)
    assert mode(folder) & 0o777 == 0o700


@pytest.mark.parametrize("before", [0o777, 0o775, 0o757, 0o722])
def test_one_that_others_can_write_is_refused_with_the_command_and_stays(tmp_path: Path, before: int) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    folder.chmod(before)
    with pytest.raises(OpenToOthers, match="chmod 700 '.*a folder'"):
        private_folder(folder)
    assert mode(folder) == before
    folder.chmod(0o700)
    private_folder(folder)


def test_inside_a_closed_folder_nobody_can_have_written(tmp_path: Path) -> None:
    """As an older version made them under a umask of 002: they are closed without a question."""
    inner = private_folder(tmp_path / "home") / "blobs"
    inner.mkdir()
    inner.chmod(0o775)
    private_folder(inner)
    assert mode(inner) == 0o700


@pytest.mark.parametrize(("uid", "before", "refused"), [(0, 0o777, False), (0, 0o1777, True), (7, 0o777, True),
                                                        (7, 0o770, False), (7, 0o755, False)])  # fmt: skip
def test_a_folder_of_somebody_else_is_as_that_one_wants_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uid: int, before: int, refused: bool
) -> None:
    """An orchestrator's empty volume is root's and open to all; /tmp is, too, and others' files are in it."""
    folder = tmp_path / "mounted"
    folder.mkdir()
    folder.chmod(before)
    if os.geteuid() == 0:
        os.chown(folder, uid, -1)
        me = 12345
    else:
        monkeypatch.setattr(private, "_ROOT", os.geteuid() if uid == 0 else -1)
        me = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: me)
    if refused:
        with pytest.raises(OpenToOthers):
            private_folder(folder)
    else:
        private_folder(folder)
    assert mode(folder) == before


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with open(file, "w", opener=private.private) as out:
        out.write("weights")
    assert mode(file) == 0o600
    file.chmod(0o644)
    close_file(file)
    assert mode(file) == 0o600
    close_file(tmp_path / "not there")
