"""`potstill simulate`: recipes compared in one process, without a service."""

from pathlib import Path
from typing import Annotated, Any

import typer

from contract.installation import install
from contract.recipes.recipe import merge
from potstill.commands.plugin import take
from potstill.console import CliError, nest, parse_options, read_object
from potstill.own_networks import gather

Recipes = Annotated[list[str] | None, typer.Option(help="Recipe by name; several are compared. Default: fedavg.")]
Data = Annotated[
    str | None,
    typer.Option(
        help="digits, digit-pairs, diabetes, shapes, sentences, mnist, fashion-mnist, cifar10, sst2, agnews, "
        "agnews-next, or a .npz or .safetensors."
    ),
]
TaskOption = Annotated[
    str | None,
    typer.Option(
        "--task",
        help="Kind of task of a file: classification, multilabel, regression, dense or tokens; default: what its "
        "labels can only be of.",
    ),
]
Metric = Annotated[
    str | None, typer.Option(help="What the task is measured by, such as perplexity; default: the first of its kind.")
]
DataDir = Annotated[
    Path | None, typer.Option(envvar="POTSTILL_DATA_DIR", help="Folder of the sets that are not made here.")
]
ClientsPerRound = Annotated[float | None, typer.Option(min=0, help="A count, or a fraction below 1; default all.")]
PrototypeOptions = Annotated[
    list[str] | None,
    typer.Option(help="""Any other field of the prototype key=value, such as 'trains=["head.*"]' or lora=a_frozen."""),
]
RecipeOptions = Annotated[
    list[str] | None, typer.Option(help="Recipe option key=value, or recipe:key=value for one of several.")
]
Architecture = Annotated[
    str | None, typer.Option(help="Network, or net:FILE for one of your own; default: one that suits the data.")
]
Targets = Annotated[
    list[float] | None,
    typer.Option(
        help="Accuracy, or value of what else the task is measured by, whose cost is told; several do. [default: 0.5 "
        "to 0.9 of shares]"
    ),
]
Lie = Annotated[
    str | None, typer.Option(help="What liars do: label-shift, sign-flip, scale, random, lazy or discriminator.")
]
ServerData = Annotated[
    str | None, typer.Option(help="Set that the server's unlabelled samples are of, or a file; default: the devices'.")
]
ServerTransform = Annotated[
    str | None, typer.Option(help="invert or rotate: what is done to the server's images, so that they look otherwise.")
]
PlanAt = Annotated[
    list[str] | None, typer.Option(help="What is otherwise from a round on: 5:local.epochs=1, 5:schedule.lr=0.01.")
]
Plugins = Annotated[
    list[Path] | None, typer.Option(help="Python file of yours with choices of its own, which is run; several are.")
]
RoundOptions = Annotated[
    list[str] | None, typer.Option(help="Plan of rounds key=value, such as mode=buffered or deadline_seconds=600.")
]
SpeedOptions = Annotated[
    list[str] | None,
    typer.Option(help="How fast devices are, by a virtual clock: spread=30, dropout=0.1 …; spread=30 is the default."),
]
Lengths = Annotated[
    str | None, typer.Option(help="short, or paper for the recipes' own epochs and steps. [default: short]")
]


def simulate(
    recipe: Recipes = None,
    data: Data = None,
    data_dir: DataDir = None,
    task: TaskOption = None,
    metric: Metric = None,
    clients: Annotated[int | None, typer.Option(min=1, help="Devices. [default: 20]")] = None,
    partition: Annotated[str | None, typer.Option(help="dirichlet, step, iid or user. [default: dirichlet]")] = None,
    alpha: Annotated[float | None, typer.Option(help="Of Dirichlet; small is skewed. [default: 0.1]")] = None,
    balanced: Annotated[str | None, typer.Option(help="feddf: even sizes, as FedDF's code.")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds of each run. [default: 10]")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Runs of each recipe. [default: 3]")] = None,
    clients_per_round: ClientsPerRound = None,
    architecture: Architecture = None,
    architecture_option: Annotated[list[str] | None, typer.Option(help="Its option key=value.")] = None,
    prototype_option: PrototypeOptions = None,
    server_architecture: Annotated[str | None, typer.Option(help="Fed-ET's larger network.")] = None,
    local: Annotated[list[str] | None, typer.Option(help="Local training key=value, such as epochs=5.")] = None,
    option: RecipeOptions = None,
    plan_at: PlanAt = None,
    round_option: RoundOptions = None,
    speeds: SpeedOptions = None,
    central: Annotated[
        bool, typer.Option("--central", help="Also one model on all devices' data, as many steps.")
    ] = False,
    lengths: Lengths = None,
    samples: Annotated[int | None, typer.Option(min=1, help="Samples of all clients together; default all.")] = None,
    server_samples: Annotated[int | None, typer.Option(min=0, help="Unlabelled samples of the server.")] = None,
    server_data: ServerData = None,
    server_transform: ServerTransform = None,
    validation_samples: Annotated[int | None, typer.Option(min=0, help="For early stopping. [default: 0]")] = None,
    test_samples: Annotated[int | None, typer.Option(min=1, help="Default: the whole test set.")] = None,
    liars: Annotated[int | None, typer.Option(min=0, help="Clients that lie, drawn by the seed. [default: 0]")] = None,
    lie: Lie = None,
    device: Annotated[str | None, typer.Option(help="Torch device. [default: cpu]")] = None,
    config: Annotated[Path | None, typer.Option(help="JSON file; other options are laid over it.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for models, figures and plots.")] = Path("simulation"),
    target: Targets = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what --out holds.")] = False,
    plugin: Plugins = None,
) -> None:
    """Compare recipes on the same partitions in this process, with the service's own pipeline."""
    for file in plugin or []:
        take(file)
    given = {
        "data": data, "data_dir": None if data_dir is None else str(data_dir), "task": task, "metric": metric,
        "clients": clients, "partition": partition, "alpha": alpha, "balanced": balanced, "rounds": rounds,
        "seeds": seeds, "clients_per_round": _number(clients_per_round), "lengths": lengths, "samples": samples,
        "server_samples": server_samples, "server_data": server_data, "server_transform": server_transform,
        "validation_samples": validation_samples, "test_samples": test_samples, "liars": liars, "lie": lie,
        "device": device,
    }  # fmt: skip
    tree = _laid_over(given, _base(config, out, resume))
    _networks(tree, architecture, architecture_option or [], prototype_option or [], server_architecture)
    _plans(tree, local or [], plan_at or [], round_option or [], speeds or [])
    _recipes(tree, recipe or [], option or [], central)
    gather(tree, out / "networks")  # `potstill.simulate.experiment.NETWORKS`, which needs torch
    raise typer.Exit(_run(_experiment(tree), out, resume, target or []))


def _run(experiment: Any, out: Path, resume: bool, targets: list[float]) -> int:
    names = "; ".join(each.title for each in experiment.recipes)
    print(
        f"{names} on {experiment.data}: {experiment.seeds} seed(s), {experiment.rounds} rounds, into {out}", flush=True
    )
    try:
        from potstill.simulate.show import run
    except ModuleNotFoundError as error:
        raise CliError(f"{error.name} is not installed; {install('worker', 'client', 'demo')}") from error
    return run(experiment, out, resume, **({"targets": targets} if targets else {}))


def _laid_over(given: dict[str, Any], file: Path | None) -> dict[str, Any]:
    """Return the file's experiment, if any, with what was given laid over it."""
    tree = read_object(file, "an experiment") if file else {}
    return tree | {key: value for key, value in given.items() if value is not None}


def _base(config: Path | None, out: Path, resume: bool) -> Path | None:
    note = out / "experiment.json"
    return note if config is None and resume and note.exists() else config


def _number(value: float | None) -> int | float | None:
    return int(value) if value is not None and value >= 1 and value.is_integer() else value


def _networks(
    tree: dict[str, Any], architecture: str | None, options: list[str], parts: list[str], server: str | None
) -> None:
    """Put the networks that were named into the tree."""
    if architecture or options or parts:
        told = parse_options(options, "--architecture-option")
        more = nest(parse_options(parts, "--prototype-option"))
        tree["prototypes"] = [{"architecture": _named(architecture, tree), "options": told, **more}]
    if server:
        tree["server_model"] = {"architecture": server}


def _named(architecture: str | None, tree: dict[str, Any]) -> str:
    known = [each.get("architecture") for each in tree.get("prototypes") or []]
    if architecture is None and not known:
        raise CliError("--architecture-option, --prototype-option: name the network too, with --architecture")
    return architecture or str(known[0])


def _recipes(tree: dict[str, Any], names: list[str], options: list[str], central: bool) -> None:
    """Put the recipes, central training if it is asked for, and their options into the tree.

    Raises:
        CliError: an option for a recipe that is not compared, or one that no recipe has.
    """
    entries = [each if isinstance(each, dict) else {"name": each} for each in tree.get("recipes") or []]
    if names:
        known = {each["name"]: each for each in entries if "name" in each}
        entries = [known.get(name, {"name": name}) for name in names]
    tree["recipes"] = entries or [{"name": "fedavg"}]
    if central and not any(each.get("pooled") for each in tree["recipes"]):
        tree["recipes"].append({"name": "central", "recipe": {"name": "central"}, "pooled": True})
    for text in options:
        owner, sign, rest = text.partition(":")
        if sign and "=" not in owner:
            _give(tree["recipes"], owner, nest(parse_options([rest])))
        else:
            _give_all(tree["recipes"], nest(parse_options([text])))


def _plans(tree: dict[str, Any], local: list[str], plan_at: list[str], rounds: list[str], speeds: list[str]) -> None:
    """Put what was said of devices and rounds into the tree."""
    nested = {"local": ("--local", local), "plan": ("--round-option", rounds), "speeds": ("--speeds", speeds)}
    tree |= {name: nest(parse_options(told, option)) for name, (option, told) in nested.items() if told}
    if plan_at:
        tree["changes"] = _changes(plan_at)


def _changes(texts: list[str]) -> list[dict[str, Any]]:
    """Return the changes of the plan, those of the same round as one.

    Raises:
        CliError: one does not begin with a round.
    """
    found: dict[int, list[str]] = {}
    for text in texts:
        index, _, told = text.partition(":")
        if not index.isascii() or not index.isdecimal() or "=" not in told:
            raise CliError(f"--plan-at {text}: expected a round and what changes, such as 5:local.epochs=1")
        found.setdefault(int(index), []).append(told)
    return [
        {"from_round": index, "change": nest(parse_options(told, "--plan-at"))} for index, told in sorted(found.items())
    ]


def _give(entries: list[dict[str, Any]], owner: str, values: dict[str, Any]) -> None:
    mine = [each for each in entries if owner in (each.get("label"), each.get("name"))]
    if not mine:
        raise CliError(f"--option {owner}:…: there is no recipe {owner!r} among those that are compared")
    for each in mine:
        each["options"] = merge(each.get("options", {}), values)


def _give_all(entries: list[dict[str, Any]], values: dict[str, Any]) -> None:
    from contract.recipes.errors import RecipeError
    from contract.recipes.presets import build

    errors = []
    for each in entries:
        options = merge(each.get("options", {}), values)
        try:
            build(str(each.get("name")), options)
        except RecipeError as error:
            errors.append(f"{each.get('name')}: {error}")
            continue
        each["options"] = options
    if len(errors) == len(entries):
        raise CliError(f"--option {next(iter(values))}: {errors[0]}")


def _experiment(tree: dict[str, Any]) -> Any:
    from pydantic import ValidationError

    from contract.faults import faults_of
    from potstill.simulate.settings import Experiment

    try:
        return Experiment.model_validate(tree)
    except ValidationError as error:
        raise CliError("{}: {}".format(*faults_of(error, tree)[0])) from error
