"""The commands by name: the module of one is imported when it is used, so that `--help` does not load them all."""

from collections.abc import Callable, Iterator, MutableMapping
from importlib import import_module
from typing import Any

import typer
from typer.main import get_command, get_group

from potstill.console import Group

GROUPS = {
    "federation": "Create, start and watch federations.",
    "round": "Look at rounds and close them.",
    "model": "List models, import weights, choose what devices get.",
    "job": "Look at jobs, retry and cancel them.",
    "worker": "Look at workers.",
    "dataset": "Server data sets: unlabelled to distil on, labelled to test on.",
    "recipe": "Look at the built-in recipes.",
    "architecture": "Look at the networks that can be named.",
    "network": "Networks of your own as data: write, register, look at them.",
    "plugin": "Look at choices of other packages on this machine, and check them.",
    "client": "Be a device on this machine; for operators: the devices of a federation.",
    "token": "Tokens for operators and viewers.",
    "audit": "The audit log: who did what, when and from where.",
    "export": "Rounds, parameters and figures for TensorBoard and MLflow.",
}
"""Groups of commands, each in the module of its name unless `_PLACES` says another, and what they are for."""
COMMANDS = {
    "status": "Show on one screen whether all is well: federations that go on, workers, the job that waits longest.",
    "predict": "Predict a data set with a federation's model or a round's ensemble, also with a downloaded one.",
    "replay": "Make models again from their recorded inputs and compare the bytes.",
    "gc": "Remove files of weights that nothing names any more (the service does it by itself every ten minutes).",
    "verify": "Read all weights and data sets and compare them with their digests.",
    "backup": "Back up the embedded installation, while it runs: database, weights, data sets.",
    "restore": "Make an empty folder an installation from a backup.",
    "config": "Show every setting, where it comes from the environment as POTSTILL_*; secrets are masked.",
    "migrate": "Bring the database to the newest schema, and make a bucket that is not there.",
    "worker-health": "Say whether the worker of this host takes jobs; exit 1 if not. For health checks of containers.",
    "demo": "Ten devices on real images, FedAvg, FedDF and FedGO side by side.",
    "compare": "Federations and simulations side by side: figures, costs, curves, and the parts in which they differ.",
    "simulate": "Compare recipes on the same partitions in this process, with the pipeline of the service.",
}
"""Single commands, and what they are for."""
_PLACES = {
    "worker": ("job", "worker_app"),
    "recipe": ("catalogue", "recipe_app"),
    "architecture": ("catalogue", "architecture_app"),
    **{name: ("storage", name) for name in ("gc", "verify", "backup", "restore")},
    "migrate": ("config", "migrate"),
    "worker-health": ("config", "worker_health"),
}
_MORE: dict[str, dict[str, tuple[str, ...]]] = {
    "federation": {
        "steer": ("start", "pause", "resume", "cancel", "rollback", "plan"),
        "keeping": ("retention", "delete"),
        "spec": ("spec",),
        "drafting": ("draft",),
        "report": ("report",),
    },
    "client": {"keeping": ("forget",)},
    "round": {"replay": ("export",), "predict": ("ensemble",)},
}
"""Commands of a group that live in other modules."""


def _module(name: str) -> Any:
    return import_module(f"potstill.commands.{name}")


def load(name: str) -> Any:
    """Import a group or a command and return it as typer runs it."""
    module, attribute = _PLACES.get(name, (name, "app" if name in GROUPS else name))
    found = getattr(_module(module), attribute)
    if name in COMMANDS:
        single = typer.Typer(add_completion=False)
        single.command(name)(found)
        return get_command(single)
    for place, verbs in _MORE.get(name, {}).items():
        for verb in verbs:
            found.command()(getattr(_module(place), verb))
    group = get_group(found)
    group.name = name
    return group


class _Commands(MutableMapping[str, Any]):
    """Commands by name, each loaded when it is looked at."""

    def __init__(self, loaded: dict[str, Any]):
        self._loaded = loaded
        self._names = [*GROUPS, *COMMANDS, *loaded]

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded and name in self._names:
            self._loaded[name] = _once(name)
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __setitem__(self, name: str, command: Any) -> None:
        self._names.append(name)
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        self._names.remove(name)
        self._loaded.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


_known: dict[str, Any] = {}


def _once(name: str) -> Any:
    if name not in _known:  # a group is given its further commands once
        _known[name] = load(name)
    return _known[name]


class Lazy(Group):
    """The root of all commands."""

    def __init__(self, *, commands: dict[str, Any] | None = None, **options: Any):
        super().__init__(**options)
        self.commands = _Commands(dict(commands or {}))
        self._explains = False

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the page of all commands."""
        self._explains = True
        super().format_help(ctx, formatter)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names, without a look at the commands."""
        return list(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; for the page of all of them, only what it says of itself."""
        said = (GROUPS | COMMANDS).get(cmd_name)
        if self._explains and said is not None:
            return _stub(cmd_name, said)
        return super().get_command(ctx, cmd_name)


def _stub(name: str, said: str) -> Any:
    single = typer.Typer(add_completion=False)
    act: Callable[[], None] = lambda: None  # noqa: E731
    single.command(name, help=said)(act)
    return get_command(single)
