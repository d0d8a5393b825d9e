"""A process that trains devices, from both sides: `Hand` starts one and speaks to it, `main` is what it does.

It is no child of `multiprocessing`, which would run the caller's script once more. It ends when its caller does, at
whatever point: its input then ends.
"""

import mmap
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal, NamedTuple

from client_sdk.errors import PotstillError
from potstill.simulate.config import SimulatedClient, SimulationError

_ALIGNED = 64
_LENGTHS = struct.Struct("<Q")


class Task(NamedTuple):
    """What a device does: one of its methods, which must be done after the ones before of the same device."""

    client: str
    what: Literal["train", "train_gan", "train_discriminator"]
    told: tuple[Any, ...]


@dataclass(frozen=True)
class Setup:
    """What a process must know to train a simulation's devices.

    Attributes:
        clients: with their folders.
        planned: the configuration as JSON, by the round from which it holds.
        seed: the federation's.
        threads: of torch.
        plugins: files of the user's with choices of their own.
    """

    clients: list[tuple[SimulatedClient, Path]]
    planned: dict[int, str]
    seed: int
    threads: int
    plugins: tuple[str, ...]


def pack(setup: Setup, path: Path) -> None:
    """Write a setup; large arrays lie behind it as they are, so that all processes share one copy in memory.

    Raises:
        AttributeError, TypeError, ValueError, ImportError: something cannot be pickled.
        pickle.PicklingError: likewise.
    """
    buffers: list[pickle.PickleBuffer] = []
    try:
        text = pickle.dumps(setup, protocol=5, buffer_callback=buffers.append)
    except pickle.PicklingError as error:
        raise ValueError(str(error)) from error
    raw = [buffer.raw() for buffer in buffers]
    head = pickle.dumps((text, [len(each) for each in raw]))
    with path.open("wb") as file:
        file.write(_LENGTHS.pack(len(head)) + head)
        for each in raw:
            file.write(bytes(-file.tell() % _ALIGNED))
            file.write(each)


def unpack(path: Path) -> Setup:
    """Read a setup; its arrays are views of the file, and what is written into them stays in this process."""
    with path.open("rb") as file:
        held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    (length,) = _LENGTHS.unpack_from(held)
    place = _LENGTHS.size + length
    text, sizes = pickle.loads(held[_LENGTHS.size : place])  # noqa: S301 - of the process that started this one
    buffers, whole = [], memoryview(held)
    for size in sizes:
        place += -place % _ALIGNED
        buffers.append(whole[place : place + size])
        place += size
    setup: Setup = pickle.loads(text, buffers=buffers)  # noqa: S301 - likewise
    return setup


class Hand:
    """A process that trains devices on one torch device.

    Attributes:
        answers: ready to be read when it has done what it was given.
    """

    def __init__(self, device: str):
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        command = [sys.executable, "-m", "potstill.simulate.hands", str(theirs_in), str(theirs_out), device]
        environment = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"} | os.environ  # as `jobs.deterministic`, before CUDA starts
        environment |= {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._process = subprocess.Popen(
            command, pass_fds=(theirs_in, theirs_out), stdin=subprocess.DEVNULL, stdout=2, env=environment
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._orders = Connection(ours_out, readable=False)
        self.answers = Connection(ours_in, writable=False)

    def give(self, packed: Path, since: int, calls: Sequence[Task]) -> None:
        """Give it calls, all of one client."""
        self._orders.send((str(packed), since, list(calls)))

    def taken(self, client: str) -> tuple[list[Any], BaseException | None]:
        """Return what came of the calls that were given, as far as they went, and why they did not go on.

        Raises:
            SimulationError: the process has ended.
        """
        try:
            results, failure = self.answers.recv()
        except EOFError:
            code = self._process.wait()
            why = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise SimulationError(
                f"client {client!r}: the process that trained it has ended ({why}); where memory ran out take fewer "
                "--processes; the same command goes on"
            ) from None
        return results, failure

    def close(self) -> None:
        """End it at once: what a device delivers is there whole or not at all, and its folder bears a kill."""
        self._process.kill()
        self._process.wait()
        self._orders.close()
        self.answers.close()


# ------------------------------------------------------------------------------------------------ in the process itself
class _Trainer:
    """Has the devices of the setup that was named last."""

    def __init__(self, device: str):
        self._device, self._packed = device, ""

    def do(self, packed: str, since: int, calls: Sequence[Task]) -> tuple[list[Any], BaseException | None]:
        """Return what came of the calls, as far as they went, and what was raised."""
        done: list[Any] = []
        try:
            if packed != self._packed:
                self._learn(packed)
            device = self._of(calls[0][0])
            device.replan(self._plan(since))
            for _, what, told in calls:
                done.append(getattr(device, what)(*told))
        except Exception as error:  # noqa: BLE001 - told in another process
            return done, _sendable(error)
        return done, None

    def _learn(self, packed: str) -> None:
        import torch

        from contract import plugins

        self._setup, self._devices, self._plans = unpack(Path(packed)), dict[str, Any](), dict[int, Any]()
        self._clients = {client.name: (client, folder) for client, folder in self._setup.clients}
        for each in self._setup.plugins:
            plugins.take_file(Path(each))
        torch.set_num_threads(self._setup.threads)
        self._packed = packed

    def _plan(self, since: int) -> Any:
        from contract.federation import FederationConfig

        if since not in self._plans:
            self._plans[since] = FederationConfig.model_validate_json(self._setup.planned[since])
        return self._plans[since]

    def _of(self, name: str) -> Any:
        from potstill.simulate.devices import Device

        if name not in self._devices:
            client, folder = self._clients[name]
            self._devices[name] = Device(client, self._plan(1), self._setup.seed, folder, self._device)
        return self._devices[name]


def _sendable(error: Exception) -> BaseException:
    """Return an error that the caller can read: itself where it survives the way, else one that says the same."""
    try:
        if str(pickle.loads(pickle.dumps(error))) == str(error):  # noqa: S301 - what was just written
            return error
    except Exception:  # noqa: BLE001 - an error's class may ask for what it does not keep
        pass
    if isinstance(error, PotstillError):
        return SimulationError(str(error))
    return RuntimeError("".join(traceback.format_exception(error)))


def main(orders_at: int, answers_at: int, device: str) -> None:
    """Do what comes until no more can come."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all of a terminal; who started this one ends it
    orders, answers = Connection(orders_at, writable=False), Connection(answers_at, readable=False)
    waiting: SimpleQueue[Any] = SimpleQueue()

    def listen() -> None:
        try:
            while True:
                waiting.put(orders.recv())
        except (EOFError, OSError):
            os._exit(0)  # in the midst of a training, too: nobody waits for it

    threading.Thread(target=listen, daemon=True).start()
    trainer = _Trainer(device)
    while True:
        answers.send(trainer.do(*waiting.get()))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
