"""What is no file stays what it is, whoever would write there: nobody puts a file in the place of a device."""

import os
import stat
from pathlib import Path
from typing import Any, cast

import pytest

from client_sdk.downloads import download
from contract.outputs import check_place
from potstill.storage import files


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def test_a_device_a_pipe_and_a_folder_are_refused(tmp_path: Path, pipe: Path) -> None:
    for place in (Path("/dev/null"), pipe, tmp_path):
        with pytest.raises(FileExistsError, match="name another place"):
            check_place(place)


def test_a_file_a_new_name_and_a_link_to_a_file_are_not(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for name in ("file", "link", "new"):
        check_place(tmp_path / name)


def test_nothing_is_asked_of_the_service_for_a_place_that_cannot_be(pipe: Path) -> None:
    with pytest.raises(FileExistsError):
        download(cast(Any, None), "http://nobody/", pipe)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_small_file_does_not_take_a_pipes_place(pipe: Path) -> None:
    with pytest.raises(FileExistsError):
        files.put(pipe, b"content")
    assert stat.S_ISFIFO(pipe.stat().st_mode) and list(pipe.parent.iterdir()) == [pipe]
