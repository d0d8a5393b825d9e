"""Load: many devices at once against an API and a worker on this machine, embedded mode.

    python -m tools.load            # all three
    python -m tools.load polls      # 300 devices long-poll while 50 upload; what /healthz says meanwhile
    python -m tools.load thousand   # 1,000 devices enrolled in one federation, one round of all of them
    python -m tools.load soak       # 24 rounds; memory of both processes after each

An error of any request ends the run with exit code 1. Times are what this machine gave, no promise.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
from tqdm import tqdm

from contract.tensors import write_file
from contract.wire.federations import FederationCreate
from tools.deployment import Deployment, wait_for

MIB = 1 << 20


@dataclass
class Fleet:
    """A federation and the tokens of its devices."""

    deployment: Deployment
    id: str
    join_token: str
    folder: Path
    tokens: dict[str, str]

    @classmethod
    def create(cls, deployment: Deployment, name: str, megabytes: float, folder: Path, **rounds: Any) -> "Fleet":
        """Create a federation of a network of about that size."""
        arrays = network(megabytes, 0.0)
        path = folder / f"{name}.safetensors"
        write_file(path, arrays)
        model = deployment.operator.import_model(path).id
        body = {
            "name": name,
            "task": {"num_classes": 10, "input": {"shape": [1, 8, 8]}},
            "prototypes": [{"architecture": "custom", "initial_model": model}],
            "recipe": {"name": "fedavg"},
            "rounds": {"deadline_seconds": 3600, **rounds},
        }
        made = deployment.operator.create_federation(FederationCreate.model_validate(body))
        return cls(deployment, made.id, made.join_token, folder, {})

    def round(self) -> Any:
        """Return the newest round."""
        newest = self.deployment.operator.federation(self.id).current_round
        assert newest is not None, "no round was opened"
        return self.deployment.operator.round(newest)

    def start(self) -> None:
        """Open the first round."""
        self.deployment.operator.start_federation(self.id)
        wait_for(lambda: self.deployment.operator.federation(self.id).current_round, why="no round opens")

    def update(self, megabytes: float, value: float) -> bytes:
        """Return an update of the newest round."""
        path = self.folder / "update.safetensors"
        base = self.deployment.operator.round(self.round().id).base_models["main"]
        write_file(path, network(megabytes, value), {"num_samples": "10", "base_model": base})
        return path.read_bytes()


def network(megabytes: float, value: float) -> dict[str, np.ndarray]:
    """Return weights of about that size."""
    return {"fc.weight": np.full((max(1, int(megabytes * MIB / 4 / 256)), 256), value, np.float32)}


async def enrol(client: httpx.AsyncClient, fleet: Fleet, names: list[str]) -> None:
    """Enrol devices, twenty at a time."""
    gate = asyncio.Semaphore(20)
    bar = tqdm(total=len(names), desc="enrol")

    async def one(name: str) -> None:
        async with gate:
            answer = await client.post(
                f"/v1/federations/{fleet.id}/clients",
                json={"name": name, "num_samples": 10},
                headers={"Authorization": f"Bearer {fleet.join_token}"},
            )
        assert answer.status_code == 201, answer.text
        fleet.tokens[name] = answer.json()["token"]
        bar.update()

    await asyncio.gather(*(one(name) for name in names))
    bar.close()


async def upload(client: httpx.AsyncClient, fleet: Fleet, name: str, url: str, body: bytes) -> float:
    """Upload an update and come back when told to; return the seconds until it counted."""
    begun = time.perf_counter()
    while True:
        answer = await client.put(url, content=body, headers={"Authorization": f"Bearer {fleet.tokens[name]}"})
        if answer.status_code not in (429, 503):
            break
        await asyncio.sleep(float(answer.headers["retry-after"]))
    assert answer.status_code in (200, 201), answer.text
    return time.perf_counter() - begun


def connect(deployment: Deployment) -> httpx.AsyncClient:
    """Return a client with as many connections as it needs."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=400)
    return httpx.AsyncClient(base_url=deployment.url, timeout=120, limits=limits)


def show(title: str, rows: dict[str, object]) -> None:
    """Print figures."""
    print(f"\n{title}")
    for name, value in rows.items():
        print(f"  {name:44} {value}")


def percentile(values: list[float], share: float) -> float:
    """Return the value that a share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def polls(deployment: Deployment, folder: Path) -> None:
    """300 devices wait for their turn, the 50 that are asked upload 5 MB, and somebody else asks /healthz."""
    fleet = Fleet.create(deployment, "polls", 5, folder, total=1, min_clients=350, clients_per_round=50, min_updates=50)
    await _enrolled(deployment, fleet, [f"d{number:04}" for number in range(350)])
    fleet.start()
    asked = {person.name for person in deployment.operator.round(fleet.round().id).participants}
    api = psutil.Process(deployment.pid("api"))
    rest, url, body = api.memory_info().rss, f"/v1/rounds/{fleet.round().id}/update", fleet.update(5, 1.0)
    ending, answered = asyncio.Event(), 0
    async with connect(deployment) as client:

        async def poll(name: str) -> None:
            nonlocal answered
            while not ending.is_set():
                headers = {"Authorization": f"Bearer {fleet.tokens[name]}"}
                answer = await client.get("/v1/assignment?wait=30", headers=headers)
                assert answer.status_code == 200, answer.text
                answered += 1

        pollers = [asyncio.create_task(poll(name)) for name in fleet.tokens if name not in asked]
        await asyncio.sleep(3)
        watcher = await _watch_health(deployment)
        begun = time.perf_counter()
        times = await asyncio.gather(*(upload(client, fleet, name, url, body) for name in sorted(asked)))
        took, peak = time.perf_counter() - begun, api.memory_info().rss
        health = await _seen(watcher)
        ending.set()
        for task in pollers:
            if task.done():
                task.result()  # an error ends the run
            task.cancel()
    shown = deployment.operator.round(fleet.round().id)
    assert shown.answered == 50
    show(
        "300 devices long-poll, 50 upload 5 MB at once",
        {
            "uploads": f"{len(times)} in {took:.1f} s, the slowest {max(times):.1f} s",
            "polls answered meanwhile": answered,
            "/healthz median, p99, worst": f"{statistics.median(health) * 1000:.0f} ms, "
            f"{percentile(health, 0.99) * 1000:.0f} ms, {max(health) * 1000:.0f} ms of {len(health)}",
            "API memory at rest, after": f"{rest / MIB:.0f} MiB, {peak / MIB:.0f} MiB",
        },
    )


_WATCH = """
import sys, time, httpx
with httpx.Client(timeout=60) as client:
    while True:
        begun = time.perf_counter()
        assert client.get(sys.argv[1] + "/healthz").status_code == 200
        print(time.perf_counter() - begun, flush=True)
        time.sleep(0.05)
"""


async def _watch_health(deployment: Deployment) -> asyncio.subprocess.Process:
    """Ask /healthz from a process of its own: this one is busy with being 350 devices."""
    command = (sys.executable, "-c", _WATCH, deployment.url)
    return await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)


async def _seen(watcher: asyncio.subprocess.Process) -> list[float]:
    assert watcher.returncode is None, "/healthz failed"
    watcher.kill()
    out, _ = await watcher.communicate()
    return [float(line) for line in out.decode().split("\n")[:-1]]


async def _enrolled(deployment: Deployment, fleet: Fleet, names: list[str]) -> None:
    async with connect(deployment) as client:
        await enrol(client, fleet, names)


async def thousand(deployment: Deployment, folder: Path) -> None:
    """1,000 devices in one federation, one round of all."""
    fleet = Fleet.create(deployment, "thousand", 0.1, folder, total=1, min_clients=1000, min_updates=1000)
    names = [f"d{number:04}" for number in range(1000)]
    async with connect(deployment) as client:
        begun = time.perf_counter()
        await enrol(client, fleet, names)
        enrolled = time.perf_counter() - begun
        fleet.start()
        url, body = f"/v1/rounds/{fleet.round().id}/update", fleet.update(0.1, 2.0)
        gate, bar = asyncio.Semaphore(64), tqdm(total=len(names), desc="upload")

        async def one(name: str) -> None:
            async with gate:
                await upload(client, fleet, name, url, body)
            bar.update()

        begun = time.perf_counter()
        await asyncio.gather(*(one(name) for name in names))
        uploaded = time.perf_counter() - begun
        bar.close()
    begun = time.perf_counter()
    operator = deployment.operator
    wait_for(lambda: operator.federation(fleet.id).state == "finished", 300, "the round does not end")
    shown = operator.round(fleet.round().id)
    assert (shown.asked, shown.answered) == (1000, 1000)
    assert abs(sum(person.weight or 0 for person in shown.participants) - 1) < 1e-9
    show(
        "1,000 devices in one federation",
        {
            "enrolled in": f"{enrolled:.1f} s",
            "1,000 uploads of 0.1 MB, 64 at once": f"{uploaded:.1f} s",
            "from the last one to the published model": f"{time.perf_counter() - begun:.1f} s",
        },
    )


async def soak(deployment: Deployment, folder: Path, rounds: int = 24, devices: int = 10) -> None:
    """Round after round; memory must stay flat."""
    fleet = Fleet.create(deployment, "soak", 4, folder, total=rounds, min_clients=devices, min_updates=devices)
    names = [f"d{number:04}" for number in range(devices)]
    processes = {name: psutil.Process(deployment.pid(name)) for name in ("api", "worker")}
    seen: dict[str, list[int]] = {name: [] for name in processes}
    async with connect(deployment) as client:
        await enrol(client, fleet, names)
        fleet.start()
        for index in tqdm(range(1, rounds + 1), desc="rounds"):
            wait_for(lambda index=index: fleet.round().index == index, why="no next round")  # type: ignore[misc]
            url, body = f"/v1/rounds/{fleet.round().id}/update", fleet.update(4, float(index))
            await asyncio.gather(*(upload(client, fleet, name, url, body) for name in names))
            rounds_url = f"/v1/rounds/{fleet.round().id}"
            wait_for(lambda u=rounds_url: _state(deployment, u) == "published", why="not published")  # type: ignore[misc]
            for name, process in processes.items():
                seen[name].append(process.memory_info().rss // MIB)
    blobs = sum(path.stat().st_size for path in (deployment.home / "blobs").rglob("*") if path.is_file()) // MIB
    rows: dict[str, object] = {
        f"{name}: MiB after rounds 1, 4, 12, {rounds}": ", ".join(str(each[i]) for i in (0, 3, 11, rounds - 1))
        for name, each in seen.items()
    }
    show(f"{rounds} rounds of {devices} devices, 4 MB each", rows | {"blobs on disk, MiB": blobs})


def _state(deployment: Deployment, url: str) -> str:
    headers = {"Authorization": f"Bearer {deployment.token}"}
    return str(httpx.get(deployment.url + url, headers=headers, timeout=30).json()["state"])


RUNS: dict[str, Callable[[Deployment, Path], Coroutine[Any, Any, None]]] = {
    "polls": polls,
    "thousand": thousand,
    "soak": soak,
}


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", help=", ".join(RUNS))
    names = parser.parse_args().runs or list(RUNS)
    if unknown := set(names) - set(RUNS):
        parser.error(f"there is no run {', '.join(sorted(unknown))}; choose of {', '.join(RUNS)}")
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            deployment = Deployment(Path(folder) / "home")
            try:
                deployment.start_api()
                deployment.start_worker()
                asyncio.run(RUNS[name](deployment, Path(folder)))
                log = deployment.log("api") + deployment.log("worker")
                assert "Traceback" not in log, log[-3000:]
            finally:
                deployment.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
