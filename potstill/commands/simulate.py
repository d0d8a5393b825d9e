"""`potstill simulate`: recipes compared without a service, and grids of such comparisons."""

from pathlib import Path
from typing import Annotated, Any

import typer

from contract.installation import install
from potstill.commands.plugin import take
from potstill.console import CliError, read_object
from potstill.own_networks import gather
from potstill.simulate import told
from potstill.tracking.places import sinks
from potstill.tracking.runs import Sink

Recipes = Annotated[
    list[str] | None, typer.Option(help="Recipe by name; several, or with commas, are compared. [default: fedavg]")
]
Clients = Annotated[str | None, typer.Option(metavar="N", help="Devices. [default: 20]")]
Partition = Annotated[str | None, typer.Option(help="dirichlet, step, iid or user. [default: dirichlet]")]
Alpha = Annotated[
    str | None, typer.Option(metavar="X", help="Of Dirichlet; small is skewed; 0.1,1.0 are both. [default: 0.1]")
]
Rounds = Annotated[str | None, typer.Option(metavar="N", help="Rounds of each run. [default: 10]")]
Seeds = Annotated[str | None, typer.Option(help="Runs of each recipe: how many, or which: 0-4, or 0,3,7. [default: 3]")]
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
ClientsPerRound = Annotated[str | None, typer.Option(metavar="N", help="A count, or a fraction below 1; default all.")]
PrototypeOptions = Annotated[
    list[str] | None,
    typer.Option(help="""Any other field of the prototype key=value, such as 'trains=["head.*"]' or lora=a_frozen."""),
]
RecipeOptions = Annotated[
    list[str] | None, typer.Option(help="Recipe option key=value, or recipe:key=value for one of several.")
]
Samples = Annotated[str | None, typer.Option(metavar="N", help="Samples of all clients together; default all.")]
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
ServerSkew = Annotated[
    str | None, typer.Option(metavar="X", help="Share that the server keeps of half of the classes. [default: all]")
]
ClientTransform = Annotated[
    str | None, typer.Option(help="invert or rotate: devices' images differ, in turn; all others are of all kinds.")
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
LocalOptions = Annotated[list[str] | None, typer.Option(help="Local training key=value, such as epochs=5.")]
TorchDevice = Annotated[str | None, typer.Option(help="Torch device; cuda:0,cuda:1 share the clients. [default: cpu]")]
Processes = Annotated[
    int | None,
    typer.Option(
        min=1, help="Processes that train clients, with the same results; default: as many as cores, where it pays."
    ),
]
Central = Annotated[bool, typer.Option("--central", help="Also one model on all devices' data, as many steps.")]
ServerSamples = Annotated[str | None, typer.Option(metavar="N", help="Unlabelled samples of the server.")]
ValidationSamples = Annotated[str | None, typer.Option(metavar="N", help="For early stopping. [default: 0]")]
Liars = Annotated[str | None, typer.Option(metavar="N", help="Clients that lie, drawn by the seed. [default: 0]")]

Resume = Annotated[bool, typer.Option("--resume", help="Go on with what --out holds, also with more of it.")]
TensorBoard = Annotated[
    Path | None, typer.Option(help="Folder in which each run's figures are written for TensorBoard, too.")
]
Mlflow = Annotated[
    str | None, typer.Option(metavar="URI", help="Where runs are written for MLflow: http://host:5000, sqlite:///file.")
]


def simulate(
    recipe: Recipes = None,
    data: Data = None,
    data_dir: DataDir = None,
    task: TaskOption = None,
    metric: Metric = None,
    clients: Clients = None,
    partition: Partition = None,
    alpha: Alpha = None,
    balanced: Annotated[str | None, typer.Option(help="feddf: even sizes, as FedDF's code.")] = None,
    rounds: Rounds = None,
    seeds: Seeds = None,
    clients_per_round: ClientsPerRound = None,
    architecture: Architecture = None,
    architecture_option: Annotated[list[str] | None, typer.Option(help="Its option key=value.")] = None,
    prototype_option: PrototypeOptions = None,
    server_architecture: Annotated[str | None, typer.Option(help="Fed-ET's larger network.")] = None,
    local: LocalOptions = None,
    option: RecipeOptions = None,
    plan_at: PlanAt = None,
    round_option: RoundOptions = None,
    speeds: SpeedOptions = None,
    central: Central = False,
    lengths: Lengths = None,
    samples: Samples = None,
    server_samples: ServerSamples = None,
    server_data: ServerData = None,
    server_transform: ServerTransform = None,
    server_skew: ServerSkew = None,
    client_transform: ClientTransform = None,
    validation_samples: ValidationSamples = None,
    test_samples: Annotated[int | None, typer.Option(min=1, help="Default: the whole test set.")] = None,
    liars: Liars = None,
    lie: Lie = None,
    device: TorchDevice = None,
    processes: Processes = None,
    config: Annotated[Path | None, typer.Option(help="JSON file; other options are laid over it.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for models, figures and plots.")] = Path("simulation"),
    target: Targets = None,
    resume: Resume = False,
    plugin: Plugins = None,
    tensorboard: TensorBoard = None,
    mlflow: Mlflow = None,
) -> None:
    """Compare recipes on the same partitions, with the service's own pipeline; what has several values is a grid."""
    _take(plugin or [])
    one = {"task": task, "metric": metric, "test_samples": test_samples, "device": device, "data_dir": data_dir}
    some = {
        "clients": clients, "partition": partition, "alpha": alpha, "balanced": balanced, "rounds": rounds,
        "clients_per_round": clients_per_round, "lengths": lengths, "samples": samples, "data": data,
        "server_samples": server_samples, "server_data": server_data, "server_transform": server_transform,
        "server_skew": server_skew, "client_transform": client_transform, "validation_samples": validation_samples,
        "liars": liars, "lie": lie,
    }  # fmt: skip
    tree = _lay(_read(_base(config, out, resume), one), some, seeds)
    told.networks(tree, architecture, architecture_option or [], prototype_option or [], server_architecture)
    _plans(tree, local or [], plan_at or [], round_option or [], speeds or [])
    told.recipes(tree, recipe or [], option or [], central)
    raise typer.Exit(_run(tree, out, resume, target or [], processes, sinks(tensorboard, mlflow)))


def _run(
    tree: dict[str, Any], out: Path, resume: bool, targets: list[float], processes: int | None, places: list[Sink]
) -> int:
    """Run the experiment, or each of a grid; networks that are documents are kept beside it."""
    gather(tree, out / "networks")  # `potstill.simulate.experiment.NETWORKS`, which needs torch
    try:
        if told.VARY in tree:
            from potstill.simulate.sweeps.grid import sweep_of
            from potstill.simulate.sweeps.show import run as run_sweep
            from potstill.simulate.sweeps.tracked import Tracks

            return run_sweep(sweep_of(tree), out, resume, processes, Tracks(places, out))
        experiment = told.experiment(tree)
        from potstill.simulate.show import run
        from potstill.simulate.sweeps.tracked import Tracks
    except ModuleNotFoundError as error:
        raise CliError(f"{error.name} is not installed; {install('worker', 'client', 'demo')}") from error
    names = "; ".join(each.title for each in experiment.recipes)
    print(
        f"{names} on {experiment.data}: {len(experiment.all_seeds)} seed(s), {experiment.rounds} rounds, into {out}",
        flush=True,
    )
    return run(experiment, out, resume, targets or None, processes, Tracks(places, out))


def _take(files: list[Path]) -> None:
    """Run files with choices of one's own."""
    for file in files:
        take(file)


def _read(file: Path | None, given: dict[str, Any]) -> dict[str, Any]:
    """Return the file's experiment, if any, with what was given laid over it."""
    tree = read_object(file, "an experiment") if file else {}
    said = {key: value for key, value in given.items() if value is not None}
    return tree | {key: str(value) if isinstance(value, Path) else value for key, value in said.items()}


def _base(config: Path | None, out: Path, resume: bool) -> Path | None:
    note = out / "experiment.json"
    return note if config is None and resume and note.exists() else config


def _lay(tree: dict[str, Any], given: dict[str, str | None], seeds: str | None) -> dict[str, Any]:
    """Return the tree with what was given laid over; what has several values varies. A file's name may hold a comma."""
    for name, text in given.items():
        if text is not None:
            whole = name.endswith("data") and Path(text).is_file()
            told.put(tree, name, [text] if whole else told.several(text))
    return tree if seeds is None else tree | told.seeds(seeds)


def _plans(tree: dict[str, Any], local: list[str], plan_at: list[str], rounds: list[str], speeds: list[str]) -> None:
    """Put what was said of devices and rounds into the tree."""
    told.put_all(tree, "local", local, "--local")
    told.put_all(tree, "plan", rounds, "--round-option")
    told.put_all(tree, "speeds", speeds, "--speeds")
    if plan_at:
        tree["changes"] = told.changes(plan_at)
