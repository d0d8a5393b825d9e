"""Files in the making and the folders of jobs, on this machine's disk."""

import contextlib
import shutil
import uuid
from pathlib import Path

from contract.private import FOLDER, private_folder
from service.infra import clock


class Scratch:
    """A folder for what is not finished yet.

    Args:
        root: the folder; made if it is not there.
        limit_bytes: the most that its files may take up together; None for no other limit than the disk.
    """

    def __init__(self, root: Path, limit_bytes: int | None = None):
        self.root, self._limit = root, limit_bytes
        private_folder(root)

    def temp(self) -> Path:
        """Return a fresh path for a file in the making."""
        return self.root / f"up-{uuid.uuid4().hex}"

    def work_dir(self, job_id: str, fence: int) -> Path:
        """Return an empty folder for the outputs of a job; those of its earlier holders go."""
        for old in self.root.glob(f"job-{job_id}-*"):
            shutil.rmtree(old, ignore_errors=True)
        folder = self.root / f"job-{job_id}-{fence}"
        folder.mkdir(mode=FOLDER)
        return folder

    def free_bytes(self) -> int:
        """Return how much more fits: the disk's free space, or what is left of the limit."""
        free = shutil.disk_usage(self.root).free
        return free if self._limit is None else min(free, self._limit - self._used())

    def _used(self) -> int:
        used = 0
        for path in self.root.rglob("*"):
            with contextlib.suppress(OSError):
                used += path.stat().st_size
        return used

    def sweep(self, older_than_seconds: float, working: set[str]) -> int:
        """Remove abandoned files and the folders of jobs that nobody works on; return how many.

        Args:
            older_than_seconds: since an upload's last byte.
            working: names of the folders of jobs that run, as `work_dir` was given them, and of those with states of
                jobs that are not over.
        """
        removed = 0
        for entry in self.root.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if clock.age(entry) < older_than_seconds:
                    continue
                if entry.is_dir():
                    if entry.name.removeprefix("job-") in working:
                        continue
                    shutil.rmtree(entry, ignore_errors=True)
                else:
                    entry.unlink()
                removed += 1
        return removed
