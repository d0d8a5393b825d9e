"""Secure rounds in the storm: devices are killed between phases too, and every published model is the plain mean."""

import multiprocessing
import random
import threading
import time
from collections import Counter
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from client_sdk.errors import PotstillError
from contract.tensors import TensorFile
from contract.wire.federations import FederationCreate
from contract.wire.plans import SecurePlan
from contract.wire.rounds import RoundDetail
from service.persistence.tables import RoundRow
from tools.chaos.crowd import Crowd
from tools.chaos.device import Device, live
from tools.chaos.reading import reading
from tools.chaos.storm import Report, Say, Storm, say
from tools.chaos.world import Outcome, World
from tools.deployment import federation_request

RECIPES: dict[str, dict[str, Any]] = {
    "by-samples": {"name": "fedavg"},
    "alike": {"name": "fedavg", "options": {"fuse": {"kind": "uniform_mean"}}},
}
NAMES = ("delta", "east", "north", "south", "west")
PLAN = SecurePlan(threshold=0.5, phase_seconds=3)
"""Three of five unmask a sum, so that two may be away."""
AWAY_SECONDS = (0.0, 0.0, 0.5, 5.0)
"""A killed device starts again at once, soon, or when a phase went on without it."""
_FORKS = multiprocessing.get_context("forkserver")


class SecureDevices:
    """Five processes; whoever is killed starts again after a while, from what is on its disk."""

    def __init__(self, world: World, created: Any, folder: Path):
        _FORKS.set_forkserver_preload(["tools.chaos.device"])
        self.devices = {
            name: Device(world.url, created.id, created.join_token, number, name, folder / name)
            for number, name in enumerate(NAMES)
        }
        self.faults: list[str] = []
        self._due = dict.fromkeys(NAMES, 0.0)
        self._running: dict[str, Any] = {}
        self._lock, self._ending = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._supervise, daemon=True)
        self._thread.start()

    @property
    def taken(self) -> Counter[tuple[str, str]]:
        """(round, device) -> acknowledged updates that the device lived to note."""
        return Counter((round_, name) for name, device in self.devices.items() for round_ in device.taken())

    def kill(self, rng: random.Random) -> bool:
        """SIGKILL one that runs; it is away for a moment, or longer than a phase."""
        with self._lock:
            alive = sorted(name for name, process in self._running.items() if process.is_alive())
            if not alive:
                return False
            name = rng.choice(alive)
            process = self._running.pop(name)
            process.kill()
            process.join()
            self._due[name] = time.monotonic() + rng.choice(AWAY_SECONDS)
            return True

    def _supervise(self) -> None:
        while not self._ending.wait(0.02) and (self._due or self._running):
            with self._lock:
                self._look_after()

    def _look_after(self) -> None:
        for name, process in list(self._running.items()):
            if not process.is_alive():
                del self._running[name]
                if process.exitcode != 0:
                    self.faults.append(f"{name} ended with exit code {process.exitcode}")
        for name, due in list(self._due.items()):
            if time.monotonic() >= due:
                del self._due[name]
                self._running[name] = _FORKS.Process(target=live, args=(self.devices[name],), daemon=True)
                self._running[name].start()

    def join(self, seconds: float) -> None:
        """Wait for all to end by themselves."""
        self._thread.join(seconds)
        self._ending.set()
        self._thread.join()
        for name, process in self._running.items():
            self.faults.append(f"{name} goes on for ever")
            process.kill()
            process.join()


class SecureWorld(World):
    """An installation whose federations are secure, and whose devices can be killed like its servers."""

    devices: SecureDevices

    def __init__(self, folder: Path, mode: str, rounds: int = 4):
        super().__init__(folder, mode, rounds)
        self.kinds["device"] = lambda rng: self.devices.kill(rng)
        self.means = self.skipped = 0

    def begin(self, recipe: str, label: str) -> tuple[Any, SecureDevices]:
        rounds: dict[str, Any] = {
            "total": self.rounds,
            "min_clients": len(NAMES),
            "min_updates": PLAN.min_group,
            "max_skipped": 50,
        }
        rounds |= {"heartbeat_seconds": 1, "lost_after": 4, "deadline_seconds": 30, "secure": PLAN.model_dump()}
        local = {"optimizer": {"kind": "sgd", "lr": 0.05}, "epochs": 2, "batch_size": 16}
        request = federation_request(label, RECIPES[recipe], rounds=rounds, local=local, datasets={})
        operator = self.deployment.operator
        created = operator.create_federation(FederationCreate.model_validate(request))
        operator.start_federation(created.id)
        self.devices = SecureDevices(self, created, self.folder / "devices" / label)
        return created, self.devices

    def count(self, id_: str, recipe: str, devices: Any) -> list[str]:
        """Every published model is the mean of those who count; who was acknowledged in such a round counts."""
        operator, faults = self.deployment.operator, list[str]()
        for each in operator.rounds(id_).items:
            shown = operator.round(each.id)
            if shown.state == "skipped":
                self.skipped += 1
                faults += [f"round {each.index} is skipped and has a model"] if shown.models else []
            elif shown.state == "published":
                self.means += 1
                faults += self._compare(shown, recipe, devices)
            else:
                faults.append(f"round {each.index} is {shown.state}")
        return faults

    def _compare(self, shown: RoundDetail, recipe: str, devices: SecureDevices) -> list[str]:
        weights = {person.name: person.weight for person in shown.participants if person.weight is not None}
        acknowledged = {name for round_, name in devices.taken if round_ == shown.id}
        faults = [f"{name} was acknowledged and does not count" for name in sorted(acknowledged - weights.keys())]
        counts = {name: devices.devices[name].samples if recipe == "by-samples" else 1 for name in weights}
        if len(counts) < PLAN.min_group or any(
            abs(weight - counts[name] / sum(counts.values())) > 1e-9 for name, weight in weights.items()
        ):
            faults.append(f"weights are {weights}")
        with reading(self.deployment) as session:
            masked_for = str(session.get_one(RoundRow, shown.id).secure_session)
        updates = {name: read(devices.devices[name].plain(masked_for)) for name in weights}
        published = self._download(shown.models["main"])
        faults += differences(published, updates, counts)
        return [f"round {shown.index}: {fault}" for fault in faults]

    def _download(self, model: str) -> dict[str, np.ndarray]:
        path = self.folder / f"{model}.safetensors"
        headers = {"Authorization": f"Bearer {self.deployment.token}"}
        answer = httpx.get(f"{self.url}/v1/models/{model}/weights", headers=headers, timeout=30, trust_env=False)
        path.write_bytes(answer.raise_for_status().content)
        return read(path)


def read(path: Path) -> dict[str, np.ndarray]:
    """Return a file's tensors."""
    with TensorFile(path) as file:
        return {name: file.read(name) for name in file.names}


def differences(
    published: dict[str, np.ndarray], updates: dict[str, dict[str, np.ndarray]], counts: dict[str, int]
) -> list[str]:
    """Return where a model is further off the mean of updates than half a step of fixed point and its own rounding."""
    faults, total = [], sum(counts.values())
    for name, values in published.items():
        mean = sum(counts[who] * arrays[name].astype(np.float64) for who, arrays in updates.items()) / total
        floats = values.dtype.kind == "f"
        bound = PLAN.fixed.step / 2 + np.spacing(np.abs(values)) / 2 + 1e-12 if floats else 0.5
        off = np.abs(values - mean)
        if not np.all(off <= bound):
            faults.append(f"tensor {name!r} is {np.max(off):.3g} off the plain mean, beyond {np.max(bound):.3g}")
    return faults


class SecureStorm(Storm):
    """Kills with an eye on the phases of secure rounds."""

    world: SecureWorld

    def __init__(self, world: SecureWorld, report: Report, seed: int, longest: float = 2.0, out: Say = say):
        super().__init__(world, report, seed, longest, out, ("any", "job", "upload"))
        self._phase = ""

    def judge(self, label: str, outcome: Outcome) -> None:
        report, world = self.report, self.world
        report.secure += 1
        report.means, report.skipped = report.means + world.means, report.skipped + world.skipped
        report.faults += [f"{world.mode} {label}: {fault}" for fault in outcome.faults]
        self.out(f"{world.mode} {label}: {world.means} means, {world.skipped} skipped, {outcome.faults or 'no fault'}")
        world.means = world.skipped = 0

    def _where(self, id_: str) -> str:
        return f"{self._phase_of(id_)} {super()._where(id_)}".strip()

    def _phase_of(self, id_: str) -> str:
        try:
            newest = self.world.deployment.operator.rounds(id_).items[-1:]
        except (PotstillError, httpx.HTTPError):
            return ""
        return "".join(f"{each.index} {each.secure.phase if each.secure else each.state}" for each in newest)

    def _moment(self, recipe: str, id_: str, devices: Crowd) -> list[str]:
        """Wait for a phase that was not met yet, as often as for anything else."""
        if self._rng.random() < 0.5:
            return super()._moment(recipe, id_, devices)
        end = time.monotonic() + self._longest
        while (found := self._phase_of(id_)) == self._phase and time.monotonic() < end:
            time.sleep(0.02)
        self._phase = found
        time.sleep(self._rng.uniform(0, self._longest / 10))
        return []


def run(folder: Path, kills: int, seed: int, modes: list[str], report: Report, out: Say = say) -> None:
    """Let a storm go over secure federations until so many kills more are done."""
    begun, done = time.monotonic(), report.total
    for number, mode in enumerate(modes):
        goal = done + kills * (number + 1) // len(modes)
        world = SecureWorld(folder / f"secure-{mode}", mode)
        try:
            storm = SecureStorm(world, report, seed + number, out=out)
            recipes = cycle(RECIPES)
            while report.total < goal:
                storm.federation(next(recipes), min(20, goal - report.total))
        finally:
            report.faults += [f"secure {mode}: {fault}" for fault in world.close()]
    report.seconds += time.monotonic() - begun
