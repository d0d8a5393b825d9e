"""The whole of a device's code: `train_and_push`."""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Unpack, cast

import torch

from client_sdk import data, identity, models
from client_sdk.client import Client
from client_sdk.connection import Connection, Options
from client_sdk.errors import UsageError
from client_sdk.forks import is_forked
from client_sdk.handed import handed
from client_sdk.loops import TrainFunction
from client_sdk.own_training import OwnTraining
from client_sdk.progress import Progress
from client_sdk.reports import RoundReport, RunReport
from client_sdk.resources import Resources
from client_sdk.runner import DeviceRun
from client_sdk.state import StateFolder, default_folder
from client_sdk.training import choose_device
from client_sdk.watched import check_none_left
from contract.wire.federations import Capability

RETRIES = 10  # about a minute: a service that restarts is not the end of a device's work


class DeviceOptions(Options, total=False):
    """What may be said to `train_and_push` beside its own arguments.

    Keys:
        train: a function that trains the rounds instead of our loop, `LocalTask` -> `LocalOutcome`.
        secure, peers: send masked updates only; identity keys of the other devices by name (docs/devices.md).
        stop: set it, from another thread, to end the run: what is trained then is not sent, the next start goes on.
        num_samples: how many samples there are, where `train` is given a data set that has no length.
    """

    train: TrainFunction | None
    secure: bool
    peers: Mapping[str, str] | None
    stop: threading.Event | None
    num_samples: int | None


def train_and_push(
    service: str | Connection,
    dataset: Any,
    *,
    federation: str,
    join_token: str | None = None,
    token: str | None = None,
    name: str | None = None,
    rounds: int | None = None,
    device: str = "auto",
    state_dir: str | Path | None = None,
    progress: bool = True,
    on_round: Callable[[RoundReport], None] | None = None,
    model: models.UserModel | None = None,
    cache: bool = False,
    label_counts: Sequence[int] | None = None,
    classes: Sequence[str] | None = None,
    prototype: str | None = None,
    capabilities: Mapping[str, Capability] | None = None,
    **options: Unpack[DeviceOptions],
) -> RunReport:
    """Take part in a federation with local data, from enrolment to the end. The data never leave the machine.

    The same `state_dir` is the same device: it goes on where it was stopped, and an update that was trained but not
    delivered is sent, not trained again. ``POTSTILL_TORCH_THREADS`` sets torch's threads; else they stay as they are.

    Args:
        service: its address, or a `Connection`.
        dataset: a torch `Dataset` of (x, y), a pair of arrays, or a path (.npz, .safetensors); see `client_sdk.data`.
        federation, join_token, token: its id, ``fed_…``; its join token, for the first time; or a device token instead.
        name: unique in the federation; results are reproducible by names. Default: from the host's, remembered.
        rounds, device: stop after so many delivered rounds, None for all of them; a torch device, or ``auto``.
        state_dir: default ``~/.local/state/potstill/<host>/<federation>[/devices/<name>]``.
        progress, on_round: whether bars and lines are shown on stderr; what is called after each round.
        model: your own module, or a function that makes it, with the federation's tensors; gets the final weights.
        cache: hold what the `Dataset` gives now; without it each epoch reads it anew, for the sake of augmentation.
        label_counts: samples per class [C], told when enrolling; only for federations that weigh by labels (FedDisco).
        classes: names of the classes in the order of your labels; by default those that a torch data set knows.
        prototype, capabilities: which network to train, or what this device has, such as ``{"memory_mb": 2048}``.
        options: such as `train`, see `DeviceOptions`; of the connection, such as `ca_file`, see `Connection`.

    Raises:
        DatasetError, ModelMismatch: data or module do not fit, or train no step; said before the device enrols.
        PotstillError: anything else; see `client_sdk.errors`.
    """
    shown = Progress(progress)
    computes = _prepare(rounds, device, shown)
    said, connected = _split(options)
    samples, own = _taken(dataset, said, partial(data.load, dataset, classes, cache=cache), classes)
    application = identity.Application(
        federation, len(samples), join_token, name, label_counts, samples.classes, prototype, capabilities
    )
    connection = Connection.to(service, token, **connected)
    folder = StateFolder(Path(state_dir or default_folder(connection.url, federation, name)))
    with Client(connection.filled(retries=RETRIES, on_retry=shown.say)) as client, folder.locked():
        resources = Resources(client, folder, samples, computes, own)
        secure, peers, stop = said.get("secure", False), said.get("peers"), said.get("stop")
        return DeviceRun(resources, shown, model, on_round, secure, peers, stop=stop).take_part(application, rounds)


def _split(options: DeviceOptions) -> tuple[DeviceOptions, Options]:
    """Return what is said of the device, and of the connection."""
    own = DeviceOptions.__annotations__.keys() - Options.__annotations__.keys()
    said = {name: value for name, value in options.items() if name in own}
    connected = {name: value for name, value in options.items() if name not in own}
    return cast(DeviceOptions, said), cast(Options, connected)


def _taken(
    dataset: Any,
    said: DeviceOptions,
    opens: Callable[[], data.Samples],
    classes: Sequence[str] | None,
) -> tuple[data.Samples, OwnTraining | None]:
    """Return the device's samples, and what trains them instead of our loop."""
    train, num_samples = said.get("train"), said.get("num_samples")
    if train is None:
        if num_samples is not None:
            raise UsageError("num_samples: our own loop counts the samples; leave it out, or pass train=")
        return opens(), None
    if not callable(train):
        raise UsageError(f"train: a {type(train).__name__} cannot be called; pass a function of one LocalTask")
    return handed(dataset, num_samples, classes, opens), OwnTraining(
        train, dataset, said.get("stop") or threading.Event()
    )


def _prepare(rounds: int | None, device: str, shown: Progress) -> torch.device:
    _check_rounds(rounds)
    check_none_left()
    _set_threads(shown)
    return choose_device(device)


def _check_rounds(rounds: int | None) -> None:
    if rounds is not None and rounds < 1:
        raise UsageError(f"rounds: expected at least 1, or None for all of them, got {rounds}")


def _set_threads(shown: Progress) -> None:
    threads = os.environ.get("POTSTILL_TORCH_THREADS", "")
    if threads and (not threads.isdecimal() or int(threads) < 1):
        raise UsageError(f"POTSTILL_TORCH_THREADS: expected a number of at least 1, got {threads!r}")
    if is_forked():  # before anything is computed
        if threads not in ("", "1"):
            raise UsageError(
                f"POTSTILL_TORCH_THREADS: this process was forked, where torch hangs with {threads} threads; set 1, or "
                "start devices by multiprocessing.get_context('spawn')"
            )
        if torch.get_num_threads() > 1:
            shown.say("this process was forked, where torch's threads hang: it computes with one; 'spawn' allows more")
        threads = "1"
    if threads:
        torch.set_num_threads(int(threads))
