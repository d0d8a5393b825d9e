"""Bundles, against the library that everybody reads tar files with."""

import hashlib
import io
import tarfile
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.bundles import DOCUMENT, inputs_and_outputs, length, pieces

CONTENT = st.lists(st.binary(max_size=2000), max_size=6)


def named(blobs: list[bytes]) -> dict[str, bytes]:
    return {f"sha256-{hashlib.sha256(blob).hexdigest()}": blob for blob in blobs}


def library(document: bytes, blobs: dict[str, bytes]) -> bytes:
    """Return what tarfile writes."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, content in [(DOCUMENT, document), *((f"blobs/{d}", blobs[d]) for d in sorted(blobs))]:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o600
            tar.addfile(entry, io.BytesIO(content))
    return target.getvalue()


@given(st.binary(max_size=3000), CONTENT, st.integers(1, 700))
def test_a_bundle_is_what_the_library_writes(document: bytes, contents: list[bytes], step: int) -> None:
    blobs = named(contents)
    sizes = {digest: len(blob) for digest, blob in blobs.items()}

    def read(digest: str) -> Iterator[bytes]:
        for start in range(0, len(blobs[digest]), step):
            yield blobs[digest][start : start + step]

    made = b"".join(pieces({DOCUMENT: document}, sizes, read))
    assert made == library(document, blobs)
    assert len(made) == length({DOCUMENT: document}, sizes)


def test_no_piece_is_larger_than_what_was_read() -> None:
    digest = "sha256-" + "0" * 64
    size = 9 << 30  # more than the octal field of a header holds
    head = pieces({DOCUMENT: b"{}"}, {digest: size}, lambda _: (bytes(1 << 16) for _ in range(size >> 16)))
    found = [len(next(head)) for _ in range(100)]
    assert max(found) == 1 << 16
    assert length({DOCUMENT: b"{}"}, {digest: size}) > size


@pytest.mark.parametrize("there", [b"abc", b"abcdefgh"])
def test_a_blob_of_another_size_ends_the_bundle(there: bytes) -> None:
    digest = "sha256-" + "1" * 64
    with pytest.raises(OSError, match=rf"blobs/{digest}: {len(there)} bytes were there, 5 were announced"):
        list(pieces({DOCUMENT: b"{}"}, {digest: 5}, lambda _: [there]))


@pytest.mark.parametrize("state", [None, {"momentum": "sha256-d"}])
def test_what_a_document_names(state: dict[str, str] | None) -> None:
    inputs = [{"digest": "sha256-a"}, {"digest": "sha256-b"}, {"digest": "sha256-a"}]
    document = {"inputs": inputs, "outputs": {"models": {"main": "sha256-c"}, "state": state}}
    assert inputs_and_outputs(document) == ({"sha256-a", "sha256-b"}, {"sha256-c", *(state or {}).values()})
