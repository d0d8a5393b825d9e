"""The states that attempts of jobs leave for one another, in a bucket: a folder on each machine, brought in step."""

import contextlib
import logging
import shutil
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from contract.private import FOLDER, private
from service.domain.errors import DomainError
from service.infra import clock
from service.infra.blobs import STATES
from service.infra.bucket import Bucket

log = logging.getLogger(__name__)


class BucketStates:
    """States under ``checkpoints/<job>/``; their names say whose they are, so attempts never write the same one.

    Args:
        bucket: where they are kept.
        root: folder of this machine's copies.
    """

    def __init__(self, bucket: Bucket, root: Path):
        self._bucket, self._root = bucket, root

    @contextlib.contextmanager
    def open(self, job_id: str, every_seconds: float) -> Iterator[Path]:
        """Fetch a job's states; send what comes to be in the folder, every so often and at the end.

        Raises:
            DomainError: unavailable; a job that waits for the store loses less than one that begins anew.
        """
        folder, prefix, ending = self._root / f"{STATES}{job_id}", f"checkpoints/{job_id}/", threading.Event()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=FOLDER)
        try:
            sent = self._fetch(folder, prefix)
        except DomainError:
            shutil.rmtree(folder, ignore_errors=True)
            raise

        def keep_in_step() -> None:
            while not ending.wait(every_seconds):
                self._send(folder, prefix, sent)

        thread = threading.Thread(target=keep_in_step, name="states", daemon=True)
        thread.start()
        try:
            yield folder
        except BaseException:
            ending.set()
            thread.join()
            self._send(folder, prefix, sent)
            raise
        finally:
            ending.set()
            thread.join()
            shutil.rmtree(folder, ignore_errors=True)

    def _fetch(self, folder: Path, prefix: str) -> set[str]:
        """Bring what is there, and return the names."""
        found: set[str] = set()
        for item in self._bucket.listing(prefix):
            name = item["Key"].rpartition("/")[2]
            part = folder / f".fetch-{name}"
            with contextlib.suppress(FileNotFoundError), open(part, "wb", opener=private) as file:
                file.writelines(self._bucket.read(prefix + name, 0, None))
                part.rename(folder / name)
                found.add(name)
        return found

    def _send(self, folder: Path, prefix: str, sent: set[str]) -> None:
        with _without_the_store("send"):
            here = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
            for name in sorted(here - sent):
                with contextlib.suppress(FileNotFoundError), (folder / name).open("rb") as file:
                    self._bucket.call("put_object", prefix + name, Body=file)
                    sent.add(name)
            for name in sorted(sent - here):  # replaced by one that has just been sent
                self._bucket.call("delete_object", prefix + name)
                sent.discard(name)

    def forget(self, job_id: str) -> None:
        """Remove the states of a job that is over."""
        shutil.rmtree(self._root / f"{STATES}{job_id}", ignore_errors=True)
        with _without_the_store("removal"):
            for item in list(self._bucket.listing(f"checkpoints/{job_id}/")):
                self._bucket.call("delete_object", self._bucket.inner(item["Key"]))

    def sweep(self, older_than_seconds: float, working: set[str]) -> int:
        """Remove states of jobs that are over and that were left behind; return how many."""
        removed, older = 0, clock.patient(clock.now(), clock.A_DAY) - timedelta(seconds=older_than_seconds)
        for item in list(self._bucket.listing("checkpoints/")):
            key = self._bucket.inner(item["Key"])
            if item["LastModified"] <= older and f"{STATES}{key.split('/')[1]}" not in working:
                self._bucket.call("delete_object", key)
                removed += 1
        return removed


@contextlib.contextmanager
def _without_the_store(what: str) -> Iterator[None]:
    """A store that is away costs the work since the last state, never the job."""
    try:
        yield
    except (DomainError, OSError) as error:
        log.warning("%s of a job's states failed: %s", what, error)
