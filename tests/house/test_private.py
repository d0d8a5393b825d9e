"""An installation and its backups are for their owner alone, also in folders that were there, whatever the umask is."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from client_sdk.errors import StateError
from client_sdk.state import Identity, StateFolder
from potstill.cli import app
from potstill.home import Home
from service.infra import atomicfs
from service.infra.blob_cache import DiskCache
from service.infra.blob_folder import FolderStore

from .installation import House


def open_ones(folder: Path) -> list[str]:
    """Return what in a folder, itself included, somebody else could read or write."""
    found = [folder, *folder.rglob("*")]
    return [f"{path} {stat.S_IMODE(path.stat().st_mode):o}" for path in found if path.stat().st_mode & 0o077]


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("no_umask")
def test_all_that_is_made_in_a_folder_that_was_there_is_closed(tmp_path: Path) -> None:
    """`mkdir` first, then `up --home`: database and blobs were readable by everybody."""
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    Home(home).make()
    house = House(home)
    house.model(1)
    assert house.settings.key
    lock = Home(home)
    lock.lock()
    lock.unlock()
    lock.write(lock.token_file, "token")
    cache = DiskCache(house.settings.cache_dir, 1 << 20, house.blobs.scratch.temp)
    copy = house.blobs.scratch.temp()
    copy.write_bytes(b"weights")
    cache.adopt(copy, "sha256-" + "0" * 64)
    with cache.held("sha256-" + "0" * 64, lambda: 7, lambda path: 7):
        pass
    house.blobs.scratch.work_dir("job_1", 1)
    atomicfs.options(home / "queue", 1.0)
    with house.store.write():
        assert open_ones(home) == [], "while the write-ahead log is there"
    house.database.close()


@pytest.mark.usefixtures("no_umask")
def test_what_an_older_version_left_open_is_closed(tmp_path: Path) -> None:
    house = House(tmp_path / "home")
    digest = house.model(1)
    assert house.settings.key
    house.database.close()
    for path in [house.home, *house.home.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    again = House(house.home)
    assert again.settings.key
    list(again.blobs.store.batches(0, 10))
    assert open_ones(again.path(digest).parent) == []
    assert [name for name in open_ones(house.home) if "migrate.lock" not in name] == []
    again.database.close()


@pytest.mark.usefixtures("no_umask")
@pytest.mark.parametrize("name", ["backup", "backup.tar"])
def test_a_backup_into_a_folder_that_was_there_is_closed(
    house: House, potstill: Callable[..., str], tmp_path: Path, name: str
) -> None:
    house.model(1)
    for path in house.settings.resolved_blob_dir.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    target = tmp_path / "drive" / name
    (target if name == "backup" else target.parent).mkdir(parents=True, mode=0o755)
    potstill("backup", str(target), "--with-secret")
    assert open_ones(target) == []
    restored = tmp_path / "restored"
    restored.mkdir(mode=0o755)
    potstill("restore", str(target), "--home", str(restored))
    assert open_ones(restored) == []


@pytest.mark.parametrize("words", [["up", "--port", "0", "--home"], ["restore", "nothing", "--home"], ["backup"]])
def test_a_folder_that_others_can_write_is_refused_with_the_command_that_mends_it(
    house: House, potstill: Callable[..., str], tmp_path: Path, words: list[str]
) -> None:
    tmp_path.chmod(0o755)
    folder = tmp_path / "open to all"
    folder.mkdir()
    folder.chmod(0o777)
    result = CliRunner().invoke(app, [*words, str(folder)])
    assert result.exit_code == 1
    assert f"chmod 700 '{folder}'" in " ".join(result.stderr.split())
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("no_umask")
def test_a_devices_folder_is_closed_or_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    folder = tmp_path / "device"
    folder.mkdir(mode=0o755)
    state = StateFolder(folder)
    with state.locked():
        state.remember(Identity(url="http://127.0.0.1", federation="fed_1", name="a", key="k", token="secret"))
        state.model("sha256-" + "0" * 64)
        assert open_ones(folder) == []
    folder.chmod(0o777)
    with pytest.raises(StateError, match="chmod 700"), state.locked():
        pass


def test_a_folder_that_was_taken_away_is_not_made_again(house: House) -> None:
    """An unmounted disk must not be replaced by an empty folder in its place."""
    root = house.settings.resolved_blob_dir
    store = FolderStore(root)
    root.rename(root.with_name("elsewhere"))
    source = root.with_name("elsewhere") / "tmp" / "x"
    source.write_bytes(b"weights")
    with pytest.raises(FileNotFoundError):
        store.keep(source, "sha256-" + "0" * 64)
    assert not root.exists()
