"""The files that a job made, on their way to become blobs: each is read once, which checks, names and sums it."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from sqlalchemy.orm import Session

from contract.tensors import Header, StreamCheck, TensorError, TensorFile, compare
from contract.wire.ensembles import Member, Network
from service.infra.blobs import Blobs
from service.infra.sums import on_disk, sums_of
from service.operations.ledger import checksums
from worker.specs import JobFailure, JobResult, KeptMember

File = tuple[str, int]
"""Digest and size."""


class Made:
    """Files of one publication.

    Args:
        blobs: where they go.
        bases: a model's name -> digest of the one whose tensors it must have.
    """

    def __init__(self, blobs: Blobs, bases: Mapping[str, str]):
        self._blobs, self._bases = blobs, bases
        self._files: dict[Path, File] = {}
        self._checksums: dict[str, str] = {}

    def __getitem__(self, path: Path) -> File:
        return self._files[path]

    def of(self, named: Mapping[str, Path]) -> dict[str, File]:
        """Return digest and size of files by their names."""
        return {name: self._files[path] for name, path in named.items()}

    def take(self, named: Mapping[str, Path]) -> None:
        """Look once more at what is about to become a global model: finite, and with the tensors it must have.

        Raises:
            JobFailure: it is not.
        """
        for name, path in named.items():
            try:
                header = self._read(path)
                if name in self._bases:
                    with TensorFile(self._blobs.cache.path(self._bases[name])) as base:
                        compare(header, base.header)
            except TensorError as error:
                code = "non_finite" if error.code == "values" else "schema_mismatch"
                raise JobFailure(code, f"the result for {name!r} is not published: {error.detail}") from error

    def _read(self, path: Path) -> Header:
        """Read, check and sum a file, once, and put it on the disk; of what the job was given as a blob, its header."""
        digest = self._blobs.cache.digest_at(path)
        if digest is not None:
            self._files[path] = (digest, path.stat().st_size)
        elif path not in self._files:
            check = StreamCheck(None, path.stat().st_size)
            with on_disk(path):  # writers leave that to us, see `worker.runner`
                sums = sums_of(path, check.feed)
            self._files[path] = (sums.digest, sums.size)
            self._checksums[sums.digest] = sums.checksum
            return check.finish()
        with TensorFile(path) as file:
            return file.header

    def _new(self) -> Iterator[tuple[Path, str]]:
        for path, (digest, _) in self._files.items():
            if path != self._blobs.cache.path(digest):
                yield path, digest

    def prepare(self) -> None:
        """Before the transaction that names them: bring the files to where blobs are."""
        for path, digest in self._new():
            self._blobs.store.prepare(path, digest)

    def keep(self) -> None:
        """Within it, under the lock that keeps blobs from going: give the files their final names."""
        for path, digest in self._new():
            if path.exists():  # two names may have one content
                self._blobs.store.keep(path, digest)

    def note(self, session: Session) -> None:
        """At its end: keep the files' checksums."""
        checksums.note(session, self._checksums)

    def adopt(self) -> None:
        """After it: let this machine's next job start from the files."""
        for path, digest in self._new():
            self._blobs.cache.adopt(path, digest)

    def member(self, kept: KeptMember) -> Member:
        """Return a member of an ensemble as it is kept."""
        network = kept.network
        assert network.weights is not None
        digest, size = self._files[network.weights]
        base = None if network.base is None else self._files[network.base][0]
        return Member(
            name=kept.name,
            client=kept.client,
            network=Network(architecture=network.architecture, options=network.options, digest=digest, base=base),
            size=size,
            num_samples=kept.num_samples,
            group=kept.is_group,
            counted=kept.counted,
        )


def members(result: JobResult) -> dict[str, Path]:
    """Return the files of an ensemble's members, by what each is told by: a client may be called as a sample is."""
    found: dict[str, Path | None] = {}
    for number, each in enumerate(result.ensemble or (), start=1):
        title = f"member {number}, {each.name}"
        found |= {title: each.network.weights, f"base of {title}": each.network.base}
    return {title: path for title, path in found.items() if path is not None}
