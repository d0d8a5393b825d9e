"""Collect, check, back up, restore: on files, against a service that goes on."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from contract.tensors import write_file
from potstill.cli import app
from potstill.console import CliError
from potstill.storage.backup import to_folder
from service.config import Settings
from service.infra.blob_folder import FolderStore
from service.infra.sums import sums_of
from service.operations.ledger.clock import now
from service.persistence import migrate
from service.persistence.tables import DatasetRow, ModelRow

from .installation import House

ROOT = Path(__file__).parents[2]


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def damage(path: Path) -> None:
    changed = bytearray(path.read_bytes())
    changed[-1] ^= 1
    path.unlink()
    path.write_bytes(changed)


# ----------------------------------------------------------------------------------------------------- gc and verify
def test_gc_tells_what_would_go_and_then_removes_just_that(house: House, potstill: Callable[..., str]) -> None:
    named, unnamed = house.model(1), house.model(2)
    with house.store.write() as session:
        session.query(ModelRow).filter(ModelRow.digest == unnamed).delete()
    told = json.loads(potstill("gc", "--dry-run", "--older-than", "0", "--json"))
    assert [each["digest"] for each in told["blobs"]] == [unnamed]
    assert told["bytes"] == house.path(unnamed).stat().st_size
    assert "0 files" in potstill("gc")  # too young: it may be named in a moment
    assert house.path(unnamed).exists()
    assert unnamed in potstill("gc", "--older-than", "0")
    assert not house.path(unnamed).exists()
    assert house.path(named).exists()


def test_verify_names_what_is_missing_and_what_is_damaged(house: House, potstill: Callable[..., str]) -> None:
    whole, missing, damaged = (house.model(seed) for seed in range(3))
    assert "whole" in potstill("verify")
    house.path(missing).unlink()
    damage(house.path(damaged))
    told = json.loads(potstill("verify", "--json", code=3))
    assert {(each["digest"], each["state"]) for each in told["findings"]} == {
        (missing, "missing"), (damaged, "damaged"),
    }  # fmt: skip
    assert told["checked"] == 3
    assert whole not in potstill("verify", code=3)


def test_without_an_installation_commands_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POTSTILL_HOME", str(tmp_path / "nothing"))
    for words in (["gc"], ["verify"], ["backup", str(tmp_path / "b")], ["replay", "x:1"]):
        result = CliRunner().invoke(app, words)
        assert (result.exit_code, "POTSTILL_HOME" in result.stderr) == (1, True), words


# --------------------------------------------------------------------------------------------------- backup, restore
@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_restored_backup_has_every_row_and_every_byte(
    house: House, potstill: Callable[..., str], tmp_path: Path, kind: str
) -> None:
    digests = [house.model(seed) for seed in range(3)]
    key = house.settings.key
    target = tmp_path / ("backup.tar" if kind == "file" else "backup")
    potstill("backup", str(target), "--with-secret")
    home = tmp_path / "new"
    assert "potstill up --home" in potstill("restore", str(target), "--home", str(home))
    again = House(home)
    try:
        assert {digest: again.path(digest).read_bytes() for digest in digests} == {
            digest: house.path(digest).read_bytes() for digest in digests
        }
        assert again.settings.key == key
        assert (home / "secret.key").stat().st_mode & 0o077 == 0
        with again.store.read() as session:
            assert {row.digest for row in session.query(ModelRow)} == set(digests)
    finally:
        again.database.close()
    assert "not empty" in potstill("restore", str(target), "--home", str(home), code=1)


def test_without_the_secret_both_ends_warn(house: House, potstill: Callable[..., str], tmp_path: Path) -> None:
    house.model(1)
    assert house.settings.key
    assert "void" in potstill("backup", str(tmp_path / "b"))
    assert "secret.key" not in content(tmp_path / "b")
    assert "--local" in potstill("restore", str(tmp_path / "b"), "--home", str(tmp_path / "new"))
    assert not (tmp_path / "new" / "secret.key").exists()


def test_the_next_backup_into_a_folder_adds_what_is_new_and_drops_what_is_gone(
    house: House, potstill: Callable[..., str], tmp_path: Path
) -> None:
    old, stays = house.model(1, 5000), house.model(2, 5000)
    target = tmp_path / "b"
    first = json.loads(potstill("backup", str(target), "--json"))
    assert first["new_bytes"] == sum(house.path(digest).stat().st_size for digest in (old, stays))
    house.drop(old)
    new = house.model(3, 5000)
    second = json.loads(potstill("backup", str(target), "--json"))
    assert second["new_bytes"] == house.path(new).stat().st_size
    names = {f"blobs/{digest[7:9]}/{digest[7:]}" for digest in (stays, new)}
    assert {name for name in content(target) if name.startswith("blobs/")} == names
    assert len(list(target.glob("*.db"))) == 1


def test_nothing_is_removed_while_a_backup_is_made_and_it_goes_afterwards(house: House) -> None:
    kept, gone = house.model(1), house.model(2)
    with FolderStore(house.settings.resolved_blob_dir).reading():
        house.drop(gone)
        assert house.path(gone).exists()
    from service.operations.ledger.garbage import collect

    assert collect(house.database, house.blobs.store, 0) == 1
    assert not house.path(gone).exists()
    assert house.path(kept).exists()


def test_every_blob_that_a_snapshot_names_is_in_it_while_models_come_and_go(house: House, tmp_path: Path) -> None:
    """A writer publishes and removes all the time; every backup is whole."""
    program = (
        "import sys, pathlib; sys.path.insert(0, sys.argv[2])\n"
        "from tests.house.test_storage import House\n"
        "house, seed = House(pathlib.Path(sys.argv[1])), 1000\n"
        "house.model(-seed, 5)\n"
        "print('begun', flush=True)\n"
        "while True:\n"
        "    seed += 1; house.drop(house.model(seed)); house.model(-seed, 5)\n"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", program, str(house.home), str(ROOT)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    try:
        assert writer.stdout.readline() == "begun\n"
        for number in range(4):
            made, _ = to_folder(house.settings, tmp_path / "b", False, lambda done, of: None)
            with sqlite3.connect(tmp_path / "b" / f"potstill-{made.database.digest[7:19]}.db") as connection:
                named = {row[0] for row in connection.execute("SELECT digest FROM models")}
            assert named == set(made.blobs), number
            assert all(sums_of(tmp_path / "b" / "blobs" / d[7:9] / d[7:]).digest == d for d in named)
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()
    assert named


def test_a_backup_that_was_cut_off_is_none(house: House, potstill: Callable[..., str], tmp_path: Path) -> None:
    for seed in range(8):
        house.model(seed, 5000)
    whole = tmp_path / "whole"
    potstill("backup", str(whole))
    restored = content(whole)
    program = (
        "import sys, time, pathlib\nfrom service.config import Settings\n"
        "from potstill.storage.backup import to_folder\n"
        "seen = []\n"
        "def report(done, of):\n"
        "    seen.append(done)\n"
        "    if len(seen) == int(sys.argv[3]): print('here', flush=True); time.sleep(600)\n"
        "to_folder(Settings(home=sys.argv[1], database_url=None), pathlib.Path(sys.argv[2]), False, report)\n"
    )
    for number in (1, 4, 9):  # the first blob, one in the middle, all but the list
        target = tmp_path / f"cut-{number}"
        child = subprocess.Popen(
            [sys.executable, "-c", program, str(house.home), str(target), str(number)],
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        assert child.stdout is not None
        assert child.stdout.readline() == b"here\n"
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        assert not (target / "backup.json").exists()
        assert "cut off" in potstill("restore", str(target), "--home", str(tmp_path / f"new-{number}"), code=1)
        potstill("backup", str(target))  # the next one takes it up
        assert {name for name in content(target) if "blobs/" in name} == {n for n in restored if "blobs/" in n}
    file = tmp_path / "b.tar"
    potstill("backup", str(file))
    for share in (0.3, 0.9):
        cut = tmp_path / "cut.tar"
        cut.write_bytes(file.read_bytes()[: int(file.stat().st_size * share)])
        potstill("restore", str(cut), "--home", str(tmp_path / f"cut-{share}"), code=1)
        assert not (tmp_path / f"cut-{share}" / "potstill.db").exists()


def test_a_damaged_backup_is_refused_and_nothing_is_left(
    house: House, potstill: Callable[..., str], tmp_path: Path
) -> None:
    digest = house.model(1)
    target, home = tmp_path / "b", tmp_path / "new"
    potstill("backup", str(target))
    spare = tmp_path / "spare"
    shutil.copytree(target, spare)
    damage(spare / "blobs" / digest[7:9] / digest[7:])
    assert "damaged" in potstill("restore", str(spare), "--home", str(home), code=1)
    assert list(home.iterdir()) == []
    damage(next(target.glob("*.db")))
    assert "damaged" in potstill("restore", str(target), "--home", str(home), code=1)
    assert list(home.iterdir()) == []


def test_a_damaged_store_makes_no_backup_and_the_one_before_stays(
    house: House, potstill: Callable[..., str], tmp_path: Path
) -> None:
    house.model(1)
    potstill("backup", str(tmp_path / "b"))
    before = content(tmp_path / "b")
    damage(house.path(house.model(2)))
    assert "potstill verify" in potstill("backup", str(tmp_path / "b"), code=1)
    assert content(tmp_path / "b").items() >= before.items()
    potstill("restore", str(tmp_path / "b"), "--home", str(tmp_path / "new"))


@pytest.mark.parametrize(
    "name", ["../outside", "/tmp/outside", "blobs/../../outside", "potstill-0.db", "blobs/aa/short"]
)
def test_a_tar_decides_no_path(potstill: Callable[..., str], tmp_path: Path, name: str) -> None:
    file = tmp_path / "b.tar"
    with tarfile.open(file, "w") as tar:
        tar.addfile(tarfile.TarInfo(name))
    assert "does not belong" in potstill("restore", str(file), "--home", str(tmp_path / "new"), code=1)
    with tarfile.open(file, "w") as tar:
        link = tarfile.TarInfo("backup.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    assert "does not belong" in potstill("restore", str(file), "--home", str(tmp_path / "new"), code=1)
    assert "does not belong" in potstill("replay", str(file), code=1)
    assert not (tmp_path / "outside").exists()


def test_a_backup_of_an_older_schema_is_brought_up(house: House, potstill: Callable[..., str], tmp_path: Path) -> None:
    digest = house.model(1)
    potstill("backup", str(tmp_path / "b"))
    old = Settings(home=tmp_path / "old", database_url=None, blob_dir=None)
    old.home.mkdir()
    snapshot = next((tmp_path / "b").glob("*.db"))
    os.replace(snapshot, old.home / "potstill.db")
    migrate.downgrade(old, "0003")
    assert "potstill migrate" in _backup_of(potstill, old.home, tmp_path)
    told = json.loads((tmp_path / "b" / "backup.json").read_text())
    sums = sums_of(old.home / "potstill.db")
    found, size = sums.digest, sums.size
    told |= {"database": {"digest": found, "size": size}, "revision": "0003"}
    shutil.copy(old.home / "potstill.db", tmp_path / "b" / f"potstill-{found[7:19]}.db")
    (tmp_path / "b" / "backup.json").write_text(json.dumps(told))
    potstill("restore", str(tmp_path / "b"), "--home", str(tmp_path / "new"))
    again = House(tmp_path / "new")
    migrate.check(again.settings)
    with again.store.read() as session:
        assert [row.digest for row in session.query(ModelRow)] == [digest]
    again.database.close()


def _backup_of(potstill: Callable[..., str], home: Path, tmp_path: Path) -> str:
    os.environ["POTSTILL_HOME"] = str(home)  # the fixture puts it back
    return potstill("backup", str(tmp_path / "c"), code=1)


def test_a_folder_that_holds_something_else_is_left_alone(house: House, tmp_path: Path) -> None:
    (tmp_path / "letters").write_text("dear")
    with pytest.raises(CliError, match="something else"):
        to_folder(house.settings, tmp_path, False, lambda done, of: None)
    assert (tmp_path / "letters").read_text() == "dear"


def test_data_sets_are_in_it(house: House, potstill: Callable[..., str], tmp_path: Path) -> None:
    path = house.blobs.scratch.temp()
    write_file(path, {"inputs": np.zeros((3, 2), np.float32)})
    sums = sums_of(path)
    digest, size = sums.digest, sums.size
    with house.store.write() as session:
        house.blobs.store.keep(path, digest)
        session.add(
            DatasetRow(
                id="dst_1", name="d", digest=digest, size=size, num_samples=3, shape=[2], dtype="float32",
                labeled=False, created_at=now(),
            )
        )  # fmt: skip
    told = json.loads(potstill("backup", str(tmp_path / "b"), "--json"))
    assert told["blobs"] == 1
