"""The whole of a device's code: `train_and_push`."""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Unpack, cast

import torch
from torch import Tensor

from client_sdk import identity, intake, models
from client_sdk.client import Client
from client_sdk.connection import Connection, Options
from client_sdk.data import Samples
from client_sdk.errors import DatasetError, UsageError
from client_sdk.forks import is_forked
from client_sdk.forms import Columns
from client_sdk.handed import handed
from client_sdk.loops import TrainFunction
from client_sdk.own_training import OwnTraining
from client_sdk.precision import Mixed, dtype_named
from client_sdk.progress import Progress, Wanted
from client_sdk.reports import RoundReport, RunReport
from client_sdk.resources import Resources
from client_sdk.runner import DeviceRun
from client_sdk.sources import Reading
from client_sdk.state import StateFolder, default_folder
from client_sdk.training import choose_device
from client_sdk.watched import check_none_left
from client_sdk.wishes import ClassWeights, Loss, Wishes
from contract.wire.federations import Capability

RETRIES = 10  # about a minute: a service that restarts is not the end of a device's work


class DeviceOptions(Options, total=False):
    """What may be said to `train_and_push` beside its own arguments.

    Keys:
        train: a function that trains the rounds instead of our loop, `LocalTask` -> `LocalOutcome`.
        secure, peers: send masked updates only; identity keys of the other devices by name (docs/devices.md).
        stop: set it, from another thread, to end the run: what is trained then is not sent, the next start goes on.
        num_samples: how many samples there are, of a data set that has no length.
        columns: names of inputs and label, such as ``("image", "label")`` or ``(["height", "weight"], "label")``, where
            items or columns have names; ``({"argument": "column", …}, "label")`` for a module of several inputs.
        collate: makes inputs [B, ...] and labels [B, ...] of a list of B items as the data set gives them.
        augment: makes another input of the shape of a sample's, in training; seeded by round, epoch and sample.
        num_workers: processes that read the data set beside the training; what is read is the same.
        evaluate_on: data that are measured before and after each round: `RoundReport.before` and `after`.
        loss, class_weights, mixed_precision: see `client_sdk.wishes.Wishes`.
    """

    train: TrainFunction | None
    secure: bool
    peers: Mapping[str, str] | None
    stop: threading.Event | None
    num_samples: int | None
    columns: Columns | None
    collate: Callable[[list[Any]], Any] | None
    augment: Callable[[Tensor], Any] | None
    num_workers: int
    evaluate_on: Any
    loss: Loss | None
    class_weights: ClassWeights | None
    mixed_precision: Mixed


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
    progress: Wanted = True,
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
        dataset: a torch `Dataset` of (x, y), a pair of arrays, a frame, a table, a path; see `client_sdk.intake`.
        federation, join_token, token: its id, ``fed_…``; its join token, for the first time; or a device token instead.
        name: unique in the federation; results are reproducible by names. Default: from the host's, remembered.
        rounds, device: stop after so many delivered rounds, None for all of them; a torch device, or ``auto``.
        state_dir: default ``~/.local/state/potstill/<host>/<federation>[/devices/<name>]``.
        progress, on_round: bars in terminals and notebooks, else the log, or ``bar``, ``log``; called after each round.
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
    samples, own = _taken(dataset, said, partial(_opened, dataset, said, classes, cache), classes)
    application = identity.Application(
        federation, len(samples), join_token, name, label_counts, samples.classes, prototype, capabilities
    )
    connection = Connection.to(service, token, **connected)
    folder = StateFolder(Path(state_dir or default_folder(connection.url, federation, name)))
    with Client(connection.filled(retries=RETRIES, on_retry=shown.say)) as client, folder.locked():
        resources = Resources(client, folder, samples, computes, own, *_wished(said, classes, computes, shown))
        secure, peers, stop = said.get("secure", False), said.get("peers"), said.get("stop")
        return DeviceRun(resources, shown, model, on_round, secure, peers, stop=stop).take_part(application, rounds)


def _split(options: DeviceOptions) -> tuple[DeviceOptions, Options]:
    """Return what is said of the device, and of the connection."""
    own = DeviceOptions.__annotations__.keys() - Options.__annotations__.keys()
    said = {name: value for name, value in options.items() if name in own}
    connected = {name: value for name, value in options.items() if name not in own}
    return cast(DeviceOptions, said), cast(Options, connected)


_OF_OUR_LOOP = ("collate", "augment", "num_workers", "loss", "class_weights", "mixed_precision")


def _taken(
    dataset: Any, said: DeviceOptions, opens: Callable[[], Samples], classes: Sequence[str] | None
) -> tuple[Samples, OwnTraining | None]:
    """Return the device's samples, and what trains them instead of our loop."""
    train = said.get("train")
    if train is None:
        return opens(), None
    if not callable(train):
        raise UsageError(f"train: a {type(train).__name__} cannot be called; pass a function of one LocalTask")
    ours = next((name for name in _OF_OUR_LOOP if said.get(name) not in (None, 0, False)), None)
    if ours is not None:
        raise UsageError(f"{ours}: is of our own loop, and train= takes its place; do it in the function")
    stop = said.get("stop") or threading.Event()
    return handed(dataset, said.get("num_samples"), classes, opens), OwnTraining(train, dataset, stop)


def _opened(dataset: Any, said: DeviceOptions, classes: Sequence[str] | None, cache: bool) -> Samples:
    workers = said.get("num_workers", 0)
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 0:
        raise UsageError(f"num_workers: a whole number of at least 0 is needed, got {workers!r}")
    for name, function in (("collate", said.get("collate")), ("augment", said.get("augment"))):
        if function is not None and not callable(function):
            raise UsageError(f"{name}: a {type(function).__name__} cannot be called; pass a function")
    how = Reading(said.get("collate"), said.get("augment"), workers)
    count = None if said.get("train") is not None else said.get("num_samples")
    return intake.take(dataset, classes, cache=cache, columns=said.get("columns"), num_samples=count, how=how)


def _wished(
    said: DeviceOptions, classes: Sequence[str] | None, computes: torch.device, shown: Progress
) -> tuple[Wishes, Samples | None]:
    """Return what our loop does otherwise, and the samples that are measured."""
    wishes = Wishes(said.get("loss"), said.get("class_weights"), said.get("mixed_precision", False))
    dtype = dtype_named(wishes.mixed_precision)
    if dtype is not None and wishes.mixed_on(computes) is None:
        name = str(dtype).removeprefix("torch.")
        shown.say(f"mixed_precision: {computes} does not compute in {name}; it trains in full precision")
    held_out = said.get("evaluate_on")
    if held_out is None:
        return wishes, None
    try:
        how = Reading(collate=said.get("collate"))
        return wishes, intake.take(held_out, classes, columns=said.get("columns"), how=how)
    except DatasetError as error:
        raise DatasetError("evaluate_on", str(error)) from error


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
