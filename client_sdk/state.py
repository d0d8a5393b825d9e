"""What a device keeps between runs: who it is, the models it has, an update that is trained but not delivered.

The folder holds `identity.json` (with the token; mode 0600), `models/<digest>.safetensors`, and `pending.safetensors`
with `pending.json`, which is written last and so says that the file is whole; `upload.json` says where its resumable
upload is. All writes are atomic. Methods that keep
something between rounds have `memory.*` (`client_sdk.memory`); DP-SGD has `privacy.json`, secure rounds have
`secure*.json` (`client_sdk.secure.session`).
"""

import errno
import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from client_sdk.client import Kind
from client_sdk.errors import StateError
from client_sdk.memory import Memory, sync_names
from client_sdk.privacy import Spent
from contract.private import OpenToOthers, private_folder
from contract.tensors import sync

logger = logging.getLogger("client_sdk")
_HELD = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK})
Kept = TypeVar("Kept", bound=BaseModel)


class Identity(BaseModel):
    """Who this device is. `token` is None until enrolment was answered; `key` makes enrolling again harmless.

    `updates` counts those that the service took from this folder. `given` is the digest of a token that was passed
    once: passed again, it does not replace the one that took its place. `classes` are those that were told when it
    enrolled: enrolling again must say the same. `declared` is how many samples the service knows of; None: nobody
    remembers. `token_given_at` and `token_renew_at` are by this device's clock.
    """

    url: str
    federation: str
    name: str
    key: str
    client_id: str | None = None
    token: str | None = None
    token_renew_at: datetime | None = None
    token_given_at: datetime | None = None
    given: str | None = None
    classes: list[str] | None = None
    declared: int | None = None
    updates: int = 0


class Pending(BaseModel):
    """A delivery that is trained and not yet acknowledged. `purpose`: id of the round or the generator; `session`: of
    secure aggregation, where it is masked. `accuracy`: None where nobody measured it; `metrics`, `before`
    and `after` stay here.
    """

    kind: Kind
    purpose: str
    base: str
    loss: float
    accuracy: float | None = 0.0
    steps: int = 0
    num_samples: int
    epsilon: float | None = None
    session: str | None = None
    metrics: dict[str, float] = {}
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}


class Upload(BaseModel):
    """Where the pending file's resumable upload is. `digest`: of that file."""

    digest: str
    url: str


class Ledger(BaseModel):
    """The privacy that this device has spent. It is written before an update leaves, and nothing is ever taken off."""

    spent: list[Spent] = []


def default_folder(url: str, federation: str, name: str | None) -> Path:
    """Return ``~/.local/state/potstill/<host>/<federation>``, with ``devices/<name>`` below it if one was given.

    The name is a part of the path so that several devices on one machine do not meet.

    Raises:
        StateError: nobody knows where this user's home is.
    """
    root = os.environ.get("XDG_STATE_HOME") or str(_home() / ".local" / "state")
    folder = Path(root) / "potstill" / _safe(httpx.URL(url).netloc.decode() or "unknown") / _safe(federation)
    return folder / "devices" / _safe(name) if name else folder


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:  # neither HOME nor an entry of the user
        raise StateError("state_dir: no home folder is known; pass state_dir=, or set XDG_STATE_HOME") from error


def _safe(text: str) -> str:
    return re.sub(r"[^\w.-]", "_", text).lstrip(".") or "_"


def _lock(handle: int) -> None:
    """Lock an open file for this process.

    Raises:
        OSError: another process has it (`_HELD`), or the file system has no locks: some network file systems.
    """
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        return
    try:
        import fcntl
    except ImportError:
        return
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


class StateFolder:
    """A device's folder; one process at a time."""

    def __init__(self, path: Path):
        self.path = path
        self.pending_file, self.draft = path / "pending.safetensors", path / "pending.part"
        self.plain, self.final = path / "plain.part", path / "final.safetensors"
        self.memory = Memory(path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder and hold it.

        Raises:
            StateError: another process holds it, others can write into it, or it cannot be read or written, now or in
                the block.
        """
        try:
            private_folder(self.path)
            handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OpenToOthers as error:
            raise StateError(f"state_dir: {error}") from error
        except OSError as error:
            raise StateError(
                f"state_dir: {self.path} cannot be written: {error.strerror}: {error.filename}; pass another "
                "state_dir, or give the folder to this user"
            ) from error
        try:
            self._lock(handle)
            yield
        except OSError as error:
            if error.filename is None or not Path(os.fsdecode(error.filename)).is_relative_to(self.path):
                raise
            raise StateError(f"state_dir: {os.fsdecode(error.filename)}: {error.strerror}") from error
        finally:
            os.close(handle)

    def _lock(self, handle: int) -> None:
        try:
            _lock(handle)
        except OSError as error:
            if error.errno in _HELD:
                raise StateError(
                    f"state_dir: {self.path} is in use by another process; give each device its own name or state_dir"
                ) from error
            logger.warning(
                "state_dir: %s is on a file system without locks (%s); see that no two devices use it at once",
                self.path,
                error.strerror,
            )

    def identity(self) -> Identity | None:
        """Return who this device is, if it is known."""
        return self.read_note("identity.json", Identity)

    def remember(self, identity: Identity) -> None:
        """Keep who this device is; readable by its user only."""
        self.write_note("identity.json", identity)

    def model(self, digest: str) -> Path:
        """Return where the model of that digest is, or will be."""
        folder = private_folder(self.path / "models")
        return folder / f"{_safe(digest)}.safetensors"

    def prune_models(self, wanted: set[str]) -> None:
        """Remove the cached models, whole or not, whose digests are not wanted."""
        for file in (self.path / "models").glob("*"):
            if not any(file.name.startswith(_safe(digest)) for digest in wanted):
                file.unlink(missing_ok=True)

    def pending(self) -> Pending | None:
        """Return what is trained and not yet delivered; its bytes are in `pending_file`."""
        return self.read_note("pending.json", Pending) if self.pending_file.exists() else None

    def submit(self, pending: Pending) -> None:
        """Move the draft, which is written whole, into place and note what it is."""
        self.drop_pending()
        os.replace(self.draft, self.pending_file)
        self.write_note("pending.json", pending)  # puts both names on the disk

    def drop_pending(self) -> None:
        """Remove the delivery: it is acknowledged, or nobody wants it any more. The note goes first."""
        (self.path / "pending.json").unlink(missing_ok=True)
        self.pending_file.unlink(missing_ok=True)
        self.forget()

    # What `client_sdk.uploads.UploadMemory` asks for

    def recall(self, digest: str) -> str | None:
        """Return the address of the pending file's resumable upload, if one was begun."""
        upload = self.read_note("upload.json", Upload)
        return upload.url if upload is not None and upload.digest == digest else None

    def remember_upload(self, digest: str, url: str) -> None:
        """Keep the address of the pending file's resumable upload."""
        self.write_note("upload.json", Upload(digest=digest, url=url))

    def forget(self) -> None:
        """The resumable upload has counted, or is gone."""
        (self.path / "upload.json").unlink(missing_ok=True)

    def acknowledge(self, pending: Pending) -> None:
        """Note that the service took a round's update, then remove it."""
        if pending.kind == "update":
            self.memory.acknowledge(pending.purpose)
            identity = self.identity()
            if identity is not None:
                self.remember(identity.model_copy(update={"updates": identity.updates + 1}))
        self.drop_pending()

    def is_new(self) -> bool:
        """Whether this device enrolled from this folder and has delivered nothing yet: no state can be lost."""
        identity = self.identity()
        return identity is not None and identity.client_id is not None and identity.updates == 0

    def spend(self, spent: Spent) -> list[Spent]:
        """Add a round's privacy cost to what was spent; return all of it."""
        ledger = self.read_note("privacy.json", Ledger) or Ledger()
        ledger.spent.append(spent)
        self.write_note("privacy.json", ledger)
        return ledger.spent

    def read_note(self, name: str, kind: type[Kept]) -> Kept | None:
        """Return what is noted in a file of this folder, if it is there."""
        file = self.path / name
        try:
            return kind.model_validate_json(file.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            raise StateError(f"state_dir: {file} is damaged; remove it or use another state_dir") from error

    def write_note(self, name: str, content: BaseModel) -> None:
        """Note something, readable by this user only; it is on the disk when this returns (`contract.tensors.sync`)."""
        temporary = self.path / f"{name}.tmp"
        temporary.unlink(missing_ok=True)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(content.model_dump(mode="json"), file)
            file.flush()
            sync(file.fileno())
        os.replace(temporary, self.path / name)
        sync_names(self.path)  # an old token must not come back once its successor was used
