"""A network in two files: the base, which stays, and the tensors that rounds move. Here they part, and meet again.

Both are safetensors files. The moving one names its base by digest in its metadata (`BASE_KEY`), so that neither is
taken for a whole network or joined with a stranger. The whole network's file is a header, then the base's bytes, then
the other's, as they are.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from contract.tensors import BUFFERS_KEY, DIGESTS_KEY, Array, Header, TensorError, TensorFile, TensorInfo, TensorWriter
from contract.tensors.files import head_bytes
from contract.updates import BASE_KEY

_PIECE = 1 << 20


def digest_of(path: Path) -> str:
    """Return ``sha256-<hex>`` of a file."""
    with path.open("rb") as file:
        return f"sha256-{hashlib.file_digest(file, 'sha256').hexdigest()}"


def part_files(whole: Path, shared: Iterable[str], base: Path, moving: Path) -> None:
    """Write a network's file as its base and the tensors that rounds move, in pieces."""
    names = frozenset(shared)
    with TensorFile(whole) as file:
        metadata = {key: value for key, value in file.header.metadata.items() if key != DIGESTS_KEY}
        copy_tensors(file, [name for name in file.names if name not in names], base, metadata)
        named = metadata | {BASE_KEY: digest_of(base)}
        copy_tensors(file, [name for name in file.names if name in names], moving, named)


def copy_tensors(file: "TensorFile | WholeFile", names: Iterable[str], target: Path, metadata: dict[str, str]) -> None:
    """Write some tensors of a network to a file of their own, in pieces."""
    chosen = list(names)
    infos = {name: (file.header.tensors[name].dtype, file.header.tensors[name].shape) for name in chosen}
    with TensorWriter(target, infos, metadata) as writer:
        for name in chosen:
            for start in range(0, file.header.tensors[name].numel, _PIECE):
                count = min(_PIECE, file.header.tensors[name].numel - start)
                writer.write(name, file.read_block(name, start, count))


def joined(moving: Header, base: Header) -> Header:
    """Return the header of the whole network: the base's tensors, then those that rounds move.

    Raises:
        TensorError: code 'tensors': one is in both.
    """
    both = next((name for name in moving.tensors if name in base.tensors), None)
    if both is not None:
        raise TensorError(
            "tensors", f"tensor {both!r} is in the base, too: the two files are of no one network", tensor=both
        )
    end = base.data_bytes
    after = {
        name: TensorInfo(info.dtype, info.shape, info.begin + end, info.end + end)
        for name, info in moving.tensors.items()
    }
    metadata = {key: value for key, value in moving.metadata.items() if key not in (BASE_KEY, DIGESTS_KEY)}
    metadata.setdefault(BUFFERS_KEY, json.dumps(sorted(base.buffers | moving.buffers)))
    tensors = base.tensors | after
    infos = {name: (info.dtype, info.shape) for name, info in tensors.items()}
    return Header(tensors, metadata, len(head_bytes(infos, metadata)))


def head_of(whole: Header) -> bytes:
    """Return the first bytes of a file with this header; the tensors' follow."""
    return head_bytes({name: (info.dtype, info.shape) for name, info in whole.tensors.items()}, whole.metadata)


def require_base(moving: Header, digest: str | None) -> None:
    """Refuse a part of a network without its base, or with another one's.

    Args:
        moving: header of the tensors that rounds move, or of a whole network's file.
        digest: of the base that is at hand; None: none is.

    Raises:
        TensorError: code 'tensors'.
    """
    wanted = moving.metadata.get(BASE_KEY)
    if wanted == digest:
        return
    if digest is None:
        raise TensorError(
            "tensors",
            f"the file holds {len(moving.tensors)} trained tensors of a network whose base is {wanted}, and no "
            "network; download the model whole",
            base=wanted,
        )
    found = "names no base" if wanted is None else f"is of the base {wanted}"
    raise TensorError("tensors", f"the trained tensors' file {found}, and this is {digest}", base=wanted)


class WholeFile:
    """A network's open file, or the two that it lies in, read as one.

    Args:
        path: the network's file, or that of the tensors that rounds move.
        base: the file of the others; None where the first has all.

    Raises:
        TensorError: a file is not sound, or they are of no one network.
    """

    def __init__(self, path: Path, base: Path | None = None):
        self._files = [TensorFile(path)]
        try:
            moving = self._files[0].header
            if base is None:
                require_base(moving, None)
                self.header = moving
                return
            self._files.append(TensorFile(base))
            self.header = joined(moving, self._files[1].header)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "WholeFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close both files."""
        for file in self._files:
            file.close()

    def _of(self, name: str) -> TensorFile:
        return next(file for file in self._files if name in file.header.tensors)

    def read(self, name: str) -> Array:
        """Return a tensor."""
        return self._of(name).read(name)

    def read_block(self, name: str, start: int, count: int) -> Array:
        """Return `count` flat values of a tensor from flat index `start` on."""
        return self._of(name).read_block(name, start, count)
