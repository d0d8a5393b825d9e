"""The devices of one federation in the storm, in this process."""

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Protocol

import httpx
import numpy as np

from client_sdk import train_and_push
from client_sdk.errors import ApiError, PotstillError
from client_sdk.reports import RoundReport
from tools.chaos.device import GONE
from tools.deployment import CLASSES, NAMES, images


class Crowd(Protocol):
    """The devices of one federation."""

    faults: list[str]

    @property
    def taken(self) -> Counter[tuple[str, str]]:
        """(round, device) -> updates that a 2xx acknowledged."""

    def join(self, seconds: float) -> None:
        """Wait for all to end by themselves."""


class Devices:
    """Real devices of the SDK, each a thread that starts again when its patience with the service is at an end."""

    def __init__(self, url: str, created: Any, folder: Path):
        self._url, self._created, self._folder = url, created, folder
        self.taken: Counter[tuple[str, str]] = Counter()
        self.faults: list[str] = []
        self.ending = threading.Event()
        self.threads = [threading.Thread(target=self._live, args=pair, daemon=True) for pair in enumerate(NAMES)]
        for thread in self.threads:
            thread.start()

    def _live(self, number: int, name: str) -> None:
        def note(report: RoundReport) -> None:
            if report.uploaded:
                self.taken[report.round_id, name] += 1

        data = images(number, 60 + 10 * number, classes=[number, number + 1])
        while not self.ending.is_set():
            try:
                train_and_push(
                    self._url,
                    data,
                    federation=self._created.id,
                    join_token=self._created.join_token,
                    name=name,
                    state_dir=self._folder / name,
                    device="cpu",
                    progress=False,
                    on_round=note,
                    label_counts=np.bincount(data[1], minlength=CLASSES).tolist(),
                )
                return
            except ApiError as error:
                if error.status not in GONE:
                    self.faults.append(f"{name}: HTTP {error.status}: {error}")
                    return
            except (PotstillError, httpx.HTTPError, OSError):
                time.sleep(0.2)
            except Exception as error:  # noqa: BLE001 - it is reported with the federation
                self.faults.append(f"{name}: {type(error).__name__}: {error}")
                return

    def join(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        for thread in self.threads:
            thread.join(max(0.0, end - time.monotonic()))
        self.ending.set()
        self.faults += [f"{thread.name} goes on for ever" for thread in self.threads if thread.is_alive()]
