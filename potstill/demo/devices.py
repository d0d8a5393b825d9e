"""Device processes of the demo, started and watched together."""

import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from contract.programs import environment, python
from potstill.console import CliError
from potstill.demo.device import DeviceConfig, Membership
from potstill.demo.service import tail
from potstill.samples import Samples
from potstill.supervisor import LAUNCH


class Devices:
    """Processes, one a share of the data; a context manager that ends those still running.

    Args:
        shares: each device's own images.
        folder: for their data and state; `logs` for their logs.
        prefix: of their names. Names decide the random draws, so they do not change between methods.
    """

    def __init__(
        self,
        url: str,
        shares: list[Samples],
        federations: list[Membership],
        folder: Path,
        logs: Path,
        prefix: str = "device",
    ):
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._configs = [
            DeviceConfig(
                name=f"{prefix}-{number}",
                url=url,
                data=share.save(folder / f"{prefix}-{number}.safetensors"),
                state_dir=folder / f"{prefix}-{number}",
                log=logs / f"{prefix}-{number}.log",
                federations=federations,
            )
            for number, share in enumerate(shares)
        ]
        self._folder = folder

    def __enter__(self) -> Self:
        for config in self._configs:
            self._start(config)
        return self

    def _start(self, config: DeviceConfig) -> None:
        file = self._folder / f"{config.name}.json"
        file.write_text(config.model_dump_json(indent=2), encoding="utf-8")
        config.log.parent.mkdir(parents=True, exist_ok=True)
        device = python("-m", "potstill.demo.device", "--config", str(file))
        with config.log.open("ab") as log:
            self._processes[config.name] = subprocess.Popen(
                [sys.executable, "-I", "-S", str(LAUNCH), str(os.getpid()), *device],
                env=environment() | {"OMP_NUM_THREADS": str(config.threads)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self._processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def running(self) -> int:
        """Return how many still run."""
        return sum(process.poll() is None for process in self._processes.values())

    def check(self) -> None:
        """Raise if a device has failed.

        Raises:
            CliError: with the end of its log.
        """
        for config in self._configs:
            code = self._processes[config.name].poll()
            if code:
                raise CliError(f"{config.name} ended with {code}; the last lines of {config.log}:\n{tail(config.log)}")
