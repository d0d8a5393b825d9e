"""One round on many workers: how long it takes with one, two and four of them, on this machine.

    python -m tools.sharing                                  # 40 ResNet-8 teachers, 1,000 images; some minutes
    python -m tools.sharing --teachers 4 --samples 300 --workers 1 2

Workers have one thread each. The first round measures what a teacher costs; each further one has as many workers as
`--workers` says in turn. Seconds are from the last upload to the published model, and what workers and their children
took of processors meanwhile: on a machine with fewer cores than workers, or a busy one, the busiest worker's says what
the clock would with a core for each. What this machine gave, no promise.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from contract.tensors import FLOATS, TensorFile, write_file
from contract.wire.federations import FederationCreate
from tools.deployment import Deployment, wait_for
from tools.load import Fleet, connect, enrol, upload

CLASSES, SHAPE = 10, [3, 32, 32]


def prepared(deployment: Deployment, folder: Path, teachers: int, samples: int, rounds: int, network: str) -> Fleet:
    """Return a federation whose devices send noise, with a server set of noise."""
    images = np.random.default_rng(5).normal(size=(samples, *SHAPE)).astype(np.float32)
    write_file(folder / "server.safetensors", {"inputs": images})
    deployment.operator.add_dataset("server", folder / "server.safetensors")
    body = {
        "name": "shared",
        "task": {"num_classes": CLASSES, "input": {"shape": SHAPE}},
        "prototypes": [{"name": "main", "architecture": network}],
        "recipe": {"name": "feddf", "options": {"schedule": {"steps": 1, "batch_size": 64}}},
        "rounds": {"total": rounds, "min_clients": teachers, "min_updates": teachers, "deadline_seconds": 36_000},
        "datasets": {"unlabeled": "server"},
        "seed": 7,
    }
    made = deployment.operator.create_federation(FederationCreate.model_validate(body))
    return Fleet(deployment, made.id, made.join_token, folder, {})


def update_of(fleet: Fleet, base: Path, model: str, number: int) -> bytes:
    """Return one device's update: the round's model with noise."""
    noise, arrays = np.random.default_rng(number), {}
    with TensorFile(base) as file:
        for name, info in file.header.tensors.items():
            value = file.read(name)
            moved = noise.normal(size=info.shape) * 0.01 if info.dtype in FLOATS and "running" not in name else 0
            arrays[name] = np.asarray(value + moved, value.dtype)
    path = fleet.folder / "update.safetensors"
    write_file(path, arrays, {"num_samples": "10", "base_model": model})
    return path.read_bytes()


async def one_round(fleet: Fleet, client: Any, index: int) -> dict[str, Any]:
    """Have everybody deliver and the round published; return its figures."""
    operator = fleet.deployment.operator
    wait_for(lambda: fleet.round().index == index, 120, "no next round")
    round_ = fleet.round()
    model, base = round_.base_models["main"], fleet.folder / "base.safetensors"
    answer = await client.get(
        f"/v1/models/{model}/weights", headers={"Authorization": f"Bearer {fleet.deployment.token}"}
    )
    base.write_bytes(answer.raise_for_status().content)
    for number, name in enumerate(fleet.tokens):
        await upload(client, fleet, name, f"/v1/rounds/{round_.id}/update", update_of(fleet, base, model, number))
    wait_for(lambda: operator.round(round_.id).state == "published", 3600, "the round does not end")
    shown = operator.round(round_.id)
    assert shown.closed_at is not None and shown.published_at is not None
    took = (shown.published_at - shown.closed_at).total_seconds()
    return {"took": took, "metrics": shown.metrics}


def alive(deployment: Deployment) -> int:
    """Return how many workers there are."""
    return sum(each.alive for each in deployment.operator.workers())


def spent(deployment: Deployment, workers: int) -> list[float]:
    """Return the processor seconds of each worker with the processes that compute for it."""
    found = []
    for number in range(workers):
        worker = psutil.Process(deployment.pid(f"worker-{number}"))
        ended, times = worker.cpu_times(), [each.cpu_times() for each in (worker, *worker.children(recursive=True))]
        found.append(sum(each.user + each.system for each in times) + ended.children_user + ended.children_system)
    return found


def row(found: dict[str, Any], used: list[float], load: float) -> str:
    """Return a line of the table."""
    labels = found["metrics"].get("labels", {})
    shares = ", ".join(str(count) for count in sorted(labels.get("workers", {}).values(), reverse=True))
    cells = [len(used), f"{found['took']:.1f}", f"{sum(used):.1f}", f"{max(used):.1f}", labels.get("shards", 0)]
    cells += [shares or "–", f"{labels.get('bytes', 0) / 1e6:.1f}", f"{load:.1f}"]
    return "| " + " | ".join(str(each) for each in cells) + " |"


async def measured(deployment: Deployment, folder: Path, options: argparse.Namespace) -> None:
    """Print the table."""
    rounds = 1 + len(options.workers)
    fleet = prepared(deployment, folder, options.teachers, options.samples, rounds, options.network)
    started = 0
    print("| workers | seconds | processor, all | the busiest | shards | by worker | MB | load |")
    print("|" + " --- |" * 8)
    async with connect(deployment) as client:
        await enrol(client, fleet, [f"d{number:03}" for number in range(options.teachers)])
        for index, workers in enumerate([options.workers[0], *options.workers], start=1):
            while started < workers:
                deployment.start_worker(f"worker-{started}")
                started += 1
            wait_for(lambda wanted=workers: alive(deployment) == wanted, why="a worker is not heard")  # type: ignore[misc]
            if index == 1:
                fleet.start()
            load, begun, before = os.getloadavg()[0], time.monotonic(), spent(deployment, workers)
            found = await one_round(fleet, client, index)
            used = [now - then for now, then in zip(spent(deployment, workers), before, strict=True)]
            if index > 1:
                print(row(found, used, load), flush=True)
            else:
                print(f"measured in {time.monotonic() - begun:.0f} s", file=sys.stderr)


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teachers", type=int, default=40)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--network", default="resnet-8")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4], help="ascending")
    parser.add_argument("--shard-seconds", type=float, default=4.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        deployment = Deployment(
            Path(folder) / "home",
            POTSTILL_LABELS_SHARD_SECONDS=str(options.shard_seconds),
            POTSTILL_LEASE_SECONDS="30",
        )
        try:
            deployment.start_api()
            asyncio.run(measured(deployment, Path(folder), options))
        finally:
            deployment.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
