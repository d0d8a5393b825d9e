"""Checksums of blobs in the database: kept with what names a blob, put right, and gone with it."""

from pathlib import Path

from sqlalchemy import select

from service.infra.sums import sums_of
from service.operations.ledger import checksums, garbage
from service.persistence.tables import ChecksumRow
from tests.service.conftest import Both
from tests.service.world import World

A, B = f"sha256-{'a' * 64}", f"sha256-{'b' * 64}"


def kept(world: World) -> dict[str, str]:
    with world.store.read() as session:
        return {row.digest: row.checksum for row in session.scalars(select(ChecksumRow))}


def path_of(world: World, digest: str) -> Path:
    return world.settings.resolved_blob_dir / digest[7:9] / digest[7:]


def test_they_are_noted_put_right_and_forgotten(both: Both) -> None:
    with both.store.write() as session:
        checksums.note(session, {B: "xxh3-2", A: "xxh3-1"})
    with both.store.write() as session:
        checksums.note(session, {A: "xxh3-1", B: "xxh3-3"})
        checksums.note(session, {})
    with both.store.read() as session:
        assert checksums.known(session, [B, "sha256-none"]) == {B: "xxh3-3"}
        assert list(checksums.batches(session)) == [{A, B}]
    with both.store.write() as session:
        checksums.forget(session, [B])
    with both.store.read() as session:
        assert checksums.known(session, [A, B]) == {A: "xxh3-1"}


def test_more_than_one_query_takes(both: Both) -> None:
    many = {f"sha256-{number:064x}": f"xxh3-{number:032x}" for number in range(1001)}
    with both.store.write() as session:
        checksums.note(session, many)
    with both.store.read() as session:
        assert checksums.known(session, many) == many
        assert [len(each) for each in checksums.batches(session)] == [500, 500, 1]


def test_collection_forgets_those_of_files_that_are_gone_already(both: Both) -> None:
    """As a crash leaves it between a removal and its commit."""
    with both.store.write() as session:
        checksums.note(session, {A: "xxh3-1"})
    garbage.collect(both.database, both.blobs.store, 0, dry_run=True)
    with both.store.read() as session:
        assert checksums.known(session, [A]) == {A: "xxh3-1"}
    garbage.collect(both.database, both.blobs.store, 0)
    with both.store.read() as session:
        assert checksums.known(session, [A]) == {}


def test_every_file_that_comes_has_one_until_it_goes(world: World) -> None:
    fed = world.running(["a", "b"])
    receipt = world.push(fed, "a")
    assert receipt.status_code == 201
    update, data = receipt.json()["digest"], world.dataset()["digest"]
    model = world.ok("POST", "/v1/models", body=world.forge.pack(world.forge.arrays(3)))["digest"]
    for digest in (update, data, model):
        assert kept(world)[digest] == sums_of(path_of(world, digest)).checksum
    world.ok("POST", f"/v1/federations/{fed.id}/cancel")
    assert not path_of(world, update).exists()
    assert update not in kept(world) and kept(world).keys() >= {data, model}
