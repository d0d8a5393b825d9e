"""Who trains devices: this process, one after the other, or several processes, each of them a device at a time.

What a device makes depends on its data, its folder and what it is told, and its training on so many threads as the
simulation says: how many processes there are changes no byte.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from contract import plugins
from contract.federation import FederationConfig
from potstill.simulate.config import SimulatedClient, SimulationError
from potstill.simulate.devices import Device
from potstill.simulate.hands import Hand, Setup, Task, pack

START_SECONDS = 4.0
"""What starting processes takes, roughly: each of them imports torch."""
_HAND_GIB = 1.0
"""Memory that a process takes without its data, generously."""


@dataclass
class Team:
    """The devices of a simulation, as a crew is told of them.

    Attributes:
        devices: by name, as they are in this process.
        clients: what they were made of, likewise with their folders.
        planned: the configuration by the round from which it holds.
        seed: the federation's.
        folder: the simulation's.
        since: of `planned` what holds now.
        alone: devices are to be trained in this process: a network of the user's own has its weights afterwards.
    """

    devices: Mapping[str, Device]
    clients: Sequence[tuple[SimulatedClient, Path]]
    planned: Mapping[int, FederationConfig]
    seed: int
    folder: Path
    since: int = 1
    alone: bool = False
    _packed: Path | None = None
    _seconds: list[float] = field(default_factory=list)

    def do(self, task: Task) -> Any:
        """Do a task in this process; return what the device's method does."""
        started = time.monotonic()
        done = getattr(self.devices[task.client], task.what)(*task.told)
        self._seconds.append(time.monotonic() - started)
        return done

    @property
    def seconds(self) -> float:
        """What a task takes here, in the mean; the first is slower."""
        told = self._seconds[1:] or self._seconds
        return sum(told) / len(told) if told else 0.0

    def __post_init__(self) -> None:
        """See whose network is a module of the user's."""
        self.alone = self.alone or any(client.model is not None for client, _ in self.clients)

    def packed(self) -> Path:
        """Return the file by which other processes know the devices.

        Raises:
            SimulationError: a data set cannot be sent to another process.
        """
        if self._packed is None:
            path = self.folder / "clients.bin"
            files = tuple(str(each) for each in plugins.files())
            told = {since: plan.model_dump_json() for since, plan in self.planned.items()}
            setup = Setup(list(self.clients), told, self.seed, torch.get_num_threads(), files)
            try:
                pack(setup, path)
            except (AttributeError, TypeError, ValueError, ImportError) as error:
                raise SimulationError(
                    f"processes: a client's dataset cannot be sent to another process ({error}); give arrays, define "
                    "its class in a module, or take --processes 1"
                ) from error
            self._packed = path
        return self._packed

    def __enter__(self) -> "Team":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Remove what other processes were told by."""
        if self._packed is not None:
            self._packed.unlink(missing_ok=True)
            self._packed = None


class Crew:
    """Processes that train devices. They start when they are needed and serve one simulation after the other.

    Args:
        processes: how many at most; None: as many as cores, devices of a round and memory allow, where what is left to
            train takes longer than they take to start. With 1 all is done in this process.
        device: torch devices, with commas between; processes share them evenly, and this one has the first.

    Attributes:
        runs: simulations that come after the one at hand, as far as is known.
    """

    def __init__(self, processes: int | None = 1, device: str = "cpu"):
        self._devices = device.split(",")
        self._asked, self._hands = processes, list[Hand]()
        self.runs = 0

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the processes; what they are at is lost."""
        for hand in self._hands:
            hand.close()
        self._hands = []

    def do(self, team: Team, tasks: Sequence[Task], again: int, report: Callable[[int], None]) -> list[Any]:
        """Do tasks; return what came of each, in their order.

        Args:
            team: whose devices they are for.
            tasks: those of one device in the order in which it does them.
            again: how often as much is still to come in this simulation.
            report: told how many are done.

        Raises:
            SimulationError: a process ended, or cannot be told of a client.
            PotstillError: what a device raised; of several the one whose task comes first.
        """
        done: list[Any] = []
        most = self._most(team, tasks)
        while len(done) < len(tasks) and (
            most < 2 or team.alone or not self._worth(team, tasks, len(done), again, most)
        ):
            report(len(done))
            done.append(team.do(tasks[len(done)]))
        if len(done) < len(tasks):
            rest = tasks[len(done) :]
            done += self._share(team, rest, min(most, len({task.client for task in rest})), len(done), report)
        report(len(tasks))
        return done

    def _most(self, team: Team, tasks: Sequence[Task]) -> int:
        """Return how many processes could have something to do."""
        clients = len({task.client for task in tasks})
        if team.alone:
            return 1
        if self._asked is not None:
            return min(self._asked, clients)
        own = len(self._devices) if self._devices[0] != "cpu" else cores() // torch.get_num_threads()
        return min(own, clients, max(1, int(_free_gib() / _HAND_GIB)))

    def _worth(self, team: Team, tasks: Sequence[Task], done: int, again: int, most: int) -> bool:
        """Whether processes are asked for, are there, or save more time than they take to start."""
        if self._asked is not None or self._hands:
            return True
        rounds = team.planned[team.since].rounds.total
        left = len(tasks) - done + len(tasks) * (again + self.runs * rounds)
        if team.seconds * left * (1 - 1 / most) <= START_SECONDS:
            return False
        try:
            team.packed()
        except SimulationError:
            team.alone = True
        return not team.alone

    def _share(
        self, team: Team, tasks: Sequence[Task], count: int, before: int, report: Callable[[int], None]
    ) -> list[Any]:
        """Let processes do tasks, those of a device one after the other in one of them, the longest first."""
        while len(self._hands) < count:
            self._hands.append(Hand(self._devices[len(self._hands) % len(self._devices)]))
        queue: dict[str, list[int]] = {}
        for number, task in enumerate(tasks):
            queue.setdefault(task.client, []).append(number)
        order = sorted(queue, key=lambda name: -len(queue[name]) * len(team.devices[name].samples))
        try:
            return _dealt(self._hands[:count], team, tasks, [queue[name] for name in order], before, report)
        except BaseException:
            self.close()
            raise


def _dealt(
    hands: Sequence[Hand],
    team: Team,
    tasks: Sequence[Task],
    groups: list[list[int]],
    before: int,
    report: Callable[[int], None],
) -> list[Any]:
    """Give each process the next group as soon as it is free; return what came of the tasks."""
    packed, found, failed = team.packed(), dict[int, Any](), dict[int, BaseException]()
    free, busy = list(hands), dict[Any, tuple[Hand, list[int]]]()
    report(before)
    while groups or busy:
        while groups and free and not failed:
            hand, numbers = free.pop(0), groups.pop(0)
            hand.give(packed, team.since, [tasks[number] for number in numbers])
            busy[hand.answers] = hand, numbers
        if failed and not busy:
            break
        for ready in wait(list(busy)):
            hand, numbers = busy.pop(ready)
            results, error = hand.taken(tasks[numbers[0]].client)
            found.update(zip(numbers, results, strict=False))
            if error is not None:
                failed[numbers[len(results)]] = error
            free.append(hand)
            report(before + len(found))
    if failed:
        raise failed[min(failed)]
    return [found[number] for number in range(len(tasks))]


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _free_gib() -> float:
    """Return the memory that is free for programs, in GiB; where nobody tells, as much as one likes."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) / 2**20
    except (OSError, StopIteration):
        return float("inf")
