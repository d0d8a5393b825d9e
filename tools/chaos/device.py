"""A device that is a process of its own, to be killed; what it masks, it keeps a copy of to compare sums with.

Processes are forked from one that has imported everything, so that a restart takes as long as reading the disk.
"""

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch._dynamo  # noqa: F401 - the first step of any optimiser does; here it is done once for all devices

import client_sdk.runner  # noqa: F401
import client_sdk.training  # noqa: F401
from client_sdk import train_and_push
from client_sdk.errors import ApiError, PotstillError
from client_sdk.reports import RoundReport
from client_sdk.secure import session
from contract.secure import files
from tools.deployment import images

GONE = frozenset({502, 503, 504})
"""Answers of a service that is away; a device asks again."""


@dataclass(frozen=True)
class Device:
    """What a device is started with, every time anew.

    Attributes:
        folder: with its state, and beside it what it tells of itself.
    """

    url: str
    federation: str
    join_token: str
    number: int
    name: str
    folder: Path

    @property
    def data(self) -> tuple[np.ndarray, np.ndarray]:
        return images(self.number, self.samples, classes=[self.number % 4, (self.number + 1) % 4])

    @property
    def samples(self) -> int:
        return 60 + 10 * self.number

    def plain(self, masked_for: str) -> Path:
        """Return where the update that was masked for a session is kept."""
        return self.folder / f"plain-{masked_for}.safetensors"

    def taken(self) -> list[str]:
        """Return the rounds whose update a 2xx acknowledged, as far as it lived to note it."""
        path = self.folder / "taken"
        return path.read_text(encoding="utf-8").split() if path.exists() else []


def live(device: Device) -> None:
    """Take part until the federation ends, whatever the service goes through."""
    os.environ["POTSTILL_TORCH_THREADS"] = "1"
    device.folder.mkdir(parents=True, exist_ok=True)
    _keep_what_is_masked(device)
    while True:
        try:
            train_and_push(
                device.url, device.data, federation=device.federation, join_token=device.join_token, name=device.name,
                state_dir=device.folder / "state", device="cpu", progress=False, secure=True,
                on_round=lambda report: _note(device, report),
            )  # fmt: skip
            return
        except ApiError as error:
            if error.status not in GONE:
                raise
        except (PotstillError, httpx.HTTPError, OSError):
            pass
        time.sleep(0.2)


def _note(device: Device, report: RoundReport) -> None:
    if report.uploaded:
        with open(device.folder / "taken", "a", encoding="utf-8") as file:
            file.write(f"{report.round_id}\n")


def _keep_what_is_masked(device: Device) -> None:
    def mask_file(plain: Path, base: Path, target: Path, *rest: Any) -> None:
        told = rest[-1]
        draft = device.folder / "plain-draft"
        shutil.copyfile(plain, draft)
        draft.replace(device.plain(told["session"]))  # whole, or not there
        files.mask_file(plain, base, target, *rest)

    session.__dict__["mask_file"] = mask_file
