"""`make bench`: start time, memory and upload rate of the API process, as a user of the service sees them."""

import argparse
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil

from client_sdk import OperatorClient
from contract.tensors import TensorWriter
from potstill.console import print_table
from potstill.demo.service import LocalService

MIB = 1 << 20


def _file(path: Path, megabytes: int, first: float) -> Path:
    """Write a data set of about `megabytes`; `first` makes its digest its own."""
    rows = megabytes * MIB // (4 * 1024)
    block = np.zeros((256, 1024), np.float32)
    with TensorWriter(path, {"inputs": ("F32", (rows, 1024))}) as writer:
        for start in range(0, rows, 256):
            block[0, 0] = first if start == 0 else 0.0
            writer.write("inputs", block[: min(256, rows - start)])
    return path


class Memory(threading.Thread):
    """Watches a process's resident memory; `peak` in bytes."""

    def __init__(self, pid: int):
        super().__init__(daemon=True)
        self._process, self._done = psutil.Process(pid), threading.Event()
        self.rest = self.peak = self._process.memory_info().rss

    def run(self) -> None:
        """Look every 20 ms."""
        while not self._done.wait(0.02):
            self.peak = max(self.peak, self._process.memory_info().rss)

    def stop(self) -> None:
        """Stop looking."""
        self._done.set()
        self.join()


def _api_pid(supervisor: int) -> int:
    for child in psutil.Process(supervisor).children(recursive=True):
        if "uvicorn" in " ".join(child.cmdline()):
            return int(child.pid)
    raise RuntimeError("the API process is not among the service's processes")


def _upload(url: str, token: str, name: str, file: Path) -> None:
    with OperatorClient(url, token, timeout=600) as client:
        client.add_dataset(name, file)


def run(uploads: int, megabytes: int) -> None:
    """Measure and print."""
    print(f"starting a service for {uploads} uploads of {megabytes} MB at once", flush=True)
    with tempfile.TemporaryDirectory(prefix="potstill-bench-") as temporary:
        folder = Path(temporary)
        start = time.monotonic()
        with LocalService(folder / "home", folder / "service.log") as service:
            ready = time.monotonic() - start
            files = [_file(folder / f"{i}.safetensors", megabytes, float(i)) for i in range(uploads)]
            memory = Memory(_api_pid(service.pid or 0))
            memory.start()
            began = time.monotonic()
            with ThreadPoolExecutor(uploads) as pool:
                jobs = [
                    pool.submit(_upload, service.url, service.token, f"bench-{i}", file) for i, file in enumerate(files)
                ]
                for job in jobs:
                    job.result()
            seconds = time.monotonic() - began
            memory.stop()
    rows = [
        ["start until /healthz answers", f"{ready:.1f} s"],
        ["API memory at rest", f"{memory.rest / MIB:.0f} MiB"],
        [f"growth during {uploads} uploads of {megabytes} MiB", f"{(memory.peak - memory.rest) / MIB:.0f} MiB"],
        ["uploads, all together", f"{uploads * megabytes / seconds:.0f} MiB/s"],
    ]
    print_table(["figure", "measured"], rows)


def main() -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--uploads", type=int, default=8, help="at once")
    parser.add_argument("--megabytes", type=int, default=500, help="size of each")
    given = parser.parse_args()
    run(given.uploads, given.megabytes)


if __name__ == "__main__":
    main()
