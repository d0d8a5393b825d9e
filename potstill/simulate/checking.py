"""Whether a choice of a plugin's is sound, asked as the tests over all choices ask potstill's own; for authors' tests.

>>> check(WeighMargin(power=2))                                               # doctest: +SKIP
"""

import inspect
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from contract.choices import Choice, kind_of
from contract.metrics import MetricChoice
from contract.tensors import FLOATS, TensorFile
from contract.wire.federations import FederationCreate
from potstill.simulate.config import SimulatedClient, SimulationConfig
from potstill.simulate.engine import Simulation
from potstill.simulate.history import History, RoundRecord, digest_of
from potstill.simulate.jobs import deterministic, threads
from worker.pipeline import run
from worker.pipeline.metrics import figure_of
from worker.specs import RoundSpec

_CLASSES, _SHAPE = 3, (1, 4, 4)
_NAMES = ("east", "north", "south", "west", "zenith")
_NETWORKS: tuple[dict[str, Any], ...] = (
    {"architecture": "cnn-digits", "options": {"widths": [3, 4]}},
    {"architecture": "mlp", "options": {"hidden": [5, 4]}},
)
_ROUNDING = 1e-4
"""How far the same values may lie apart that were added up in another order, and trained on."""
_SHORT: dict[str, Any] = {"schedule": {"steps": 3, "batch_size": 8}}
_STAGE = {
    "generator": {"steps": 3, "batch_size": 8, "options": {"latent": 4, "hidden": [6]}},
    "plan": {"architecture": "disc-mlp", "options": {"hidden": [4]}, "epochs": 1, "batch_size": 8},
}


class Unsound(AssertionError):
    """A choice that no federation should make; the message says what is wrong with it."""


def check(choice: Choice) -> None:
    """Run two rounds of a tiny federation with a choice, again, with its updates in another order, and with its clients
    under each other's names.

    All that is made must be finite and the same each time, under other names up to rounding; it takes a few seconds.

    Raises:
        Unsound: it is not, the federation fails, or the choice does not say what it is.
    """
    if not inspect.cleandoc(type(choice).__doc__ or ""):
        raise Unsound(f"{_called(choice)}: its docstring says what it is wherever it is listed; write one")
    try:
        with tempfile.TemporaryDirectory(prefix="potstill-check-") as folder:
            first, second = (_run(choice, Path(folder) / name) for name in ("first", "second"))
    except Unsound:
        raise
    except Exception as error:  # code of others
        raise Unsound(f"{_called(choice)}: a federation with it fails: {error or type(error).__name__}") from error
    if first != second:
        raise Unsound(f"{_called(choice)}: it does not repeat itself: the same federation made other files")


def _called(choice: Choice) -> str:
    return f"{choice.slot} {kind_of(type(choice))!r}"


class _Watched(Simulation):
    """Keeps what its rounds were told."""

    told: RoundSpec

    def _fuse(self, *given: Any) -> RoundSpec:
        self.told = super()._fuse(*given)
        return self.told


def _run(choice: Choice, folder: Path) -> list[dict[str, str]]:
    """Run a federation with a choice; return the digests of what each of its rounds made."""
    simulation, made = _Watched(_config(choice, folder)), list[dict[str, str]]()

    def see(record: RoundRecord) -> None:
        files = {name: record.models[name] for name in record.published} | record.state
        _finite(choice, files)
        made.append({name: digest_of(path) for name, path in sorted(files.items())})
        if isinstance(choice, MetricChoice):
            _measures(choice, record, simulation.told)
        _repeats(choice, simulation.told, files, folder / f"again-{record.index}")

    _ended(choice, simulation.run(see))
    return made


def _ended(choice: Choice, history: History) -> None:
    ending = history.ending
    if ending is None or ending.state != "finished":
        raise Unsound(f"{_called(choice)}: a federation with it ends early: {ending and ending.detail}")


def _repeats(choice: Choice, spec: RoundSpec, made: Mapping[str, Path], folder: Path) -> None:
    """Do a round's job again: as it was, with its updates turned round, and with clients under each other's names."""
    digests = {name: digest_of(path) for name, path in made.items()}
    orders = {"it does not repeat itself": spec.updates, "it hangs on the order of updates": spec.updates[::-1]}
    for number, (fault, updates) in enumerate(orders.items()):
        again = _made(spec.model_copy(update={"updates": updates, "output_dir": folder / str(number)}))
        if {name: digest_of(again[name]) for name in digests} != digests:
            raise Unsound(f"{_called(choice)}: {fault}: other files were made of the same round")
    if choice.slot in ("fuse", "distil.weigh"):
        _nameless(choice, spec, made, folder / "names")


def _measures(choice: MetricChoice, record: RoundRecord, spec: RoundSpec) -> None:
    """Refuse a metric that gave no number, or one that hangs on how samples are ordered and cut into batches."""
    if None in record.metrics["further"][choice.kind].values():
        raise Unsound(f"{_called(choice)}: its figure is no finite number")
    numbers = np.random.default_rng(3)
    outputs, labels = numbers.normal(size=(60, _CLASSES)), numbers.integers(0, _CLASSES, 60)
    order, found = numbers.permutation(60), []
    for cuts, rows in (([], np.arange(60)), ([7, 30], np.arange(60)), ([59], order)):
        figure = figure_of(choice, spec.task)
        for batch in np.split(rows, cuts):
            figure.add(outputs[batch], labels[batch])
        found.append(figure.value())
    if not np.allclose(found, found[0], rtol=_ROUNDING, atol=_ROUNDING):
        raise Unsound(f"{_called(choice)}: it hangs on how samples are cut into batches: {found}")


def _made(spec: RoundSpec) -> dict[str, Path]:
    with deterministic(), threads(1):
        result = run(spec, lambda _: None)
    return {**result.models, **(result.state or {})}


def _nameless(choice: Choice, spec: RoundSpec, made: Mapping[str, Path], folder: Path) -> None:
    """Refuse a rule for which it makes a difference what clients are called: they are taken in the order of names."""
    called = dict(zip(_NAMES, reversed(_NAMES), strict=True))
    updates = [each.model_copy(update={"client": called[each.client]}) for each in spec.updates]
    scores = {called[name]: path for name, path in spec.scores.items()}
    again = _made(spec.model_copy(update={"updates": updates, "scores": scores, "output_dir": folder}))
    for name, path in made.items():
        with TensorFile(path) as one, TensorFile(again[name]) as other:
            for tensor in one.names:
                before, after = (file.read(tensor).astype(np.float64) for file in (one, other))
                if before.shape != after.shape or not np.allclose(before, after, rtol=_ROUNDING, atol=_ROUNDING):
                    raise Unsound(f"{_called(choice)}: what clients are called makes a difference to {tensor!r}")


def _finite(choice: Choice, files: Mapping[str, Path]) -> None:
    for name, path in files.items():
        with TensorFile(path) as file:
            for tensor, info in file.header.tensors.items():
                if info.dtype in FLOATS and not np.isfinite(file.read(tensor).astype(np.float64)).all():
                    raise Unsound(f"{_called(choice)}: tensor {tensor!r} of {name!r} has NaN or infinity")


# ------------------------------------------------------------------------------------------------------ the federation
def _config(choice: Choice, folder: Path) -> SimulationConfig:
    folder.mkdir()
    clients = [SimulatedClient(name, _samples(number, 12 + number)) for number, name in enumerate(_NAMES)]
    server = {"unlabeled": _samples(90, 20)[0], "validation": _samples(91, 20), "test": _samples(92, 20)}
    return SimulationConfig(_request(choice), clients, server, folder, threads=1, keep_updates=True)


def _samples(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    numbers = np.random.default_rng(seed)
    labels = numbers.integers(0, _CLASSES, count)
    inputs = numbers.normal(size=(count, *_SHAPE)) + labels[:, None, None, None]
    return inputs.astype(np.float32), labels


def _request(choice: Choice) -> FederationCreate:
    recipe, local = _mixture(choice)
    metrics = [choice.model_dump(mode="json")] if choice.slot == "rounds.metrics" else []
    return FederationCreate.model_validate(
        {
            "name": "check",
            "task": {"num_classes": _CLASSES, "input": {"shape": list(_SHAPE)}},
            "prototypes": [next(_fitting(choice))],
            "recipe": recipe,
            "local": {"epochs": 1, "batch_size": 8, "optimizer": {"kind": "sgd", "lr": 0.05}} | local,
            "rounds": {"total": 2, "min_updates": len(_NAMES), "metrics": metrics},
            "seed": 5,
        }
    )


def _mixture(choice: Choice) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a recipe with a choice, and what of the local plan goes with it."""
    partner = choice.declares.partner
    told = choice.model_dump(mode="json")
    if choice.slot == "rounds.metrics":
        return {"name": "fedavg"}, {}
    if choice.slot == "local.objective":
        options = {} if partner is None else {"fuse": {"kind": partner.kind}}
        return {"name": "fedavg", "options": options}, {"objective": told}
    local: dict[str, Any] = {} if partner is None else {"objective": {"kind": partner.kind}}
    if choice.slot == "fuse":
        return {"name": "fedavg", "options": {"fuse": told}}, local
    if "scores" in choice.needs:
        return {"name": "fedgo-small", "options": {"weigh": told, "discriminators": _STAGE, **_SHORT}}, local
    return {"name": "feddf", "options": {"weigh": told, **_SHORT}}, local


def _fitting(choice: Choice) -> Iterator[dict[str, Any]]:
    """Yield the networks that a choice takes; the last of ours whatever it says."""
    check_network = getattr(choice, "check_network", None)
    for network in _NETWORKS:
        try:
            if check_network is not None:
                check_network(network["architecture"], network["options"], _SHAPE, _CLASSES)
        except ValueError:
            continue
        yield network
    yield _NETWORKS[-1]
