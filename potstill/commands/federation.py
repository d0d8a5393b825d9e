"""`potstill federation`: create, list, show, watch."""

from collections.abc import Sequence
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from contract.faults import faults_of
from contract.notes import Note
from contract.plugins import ELSEWHERE
from contract.recipes.recipe import merge
from contract.wire.events import Event
from contract.wire.federations import (
    TERMINAL_STATES,
    DatasetRefs,
    Federation,
    FederationCreate,
    FederationCreated,
)
from contract.wire.rounds import Job
from potstill import exits
from potstill.commands.token import seconds
from potstill.connection import Token, Url, find_url, operator
from potstill.console import (
    CliError,
    Group,
    Json,
    nest,
    out,
    parse_options,
    percent,
    print_json,
    print_table,
    printable,
    read_object,
    show_list,
    show_one,
)
from potstill.figures import in_words, main_figure, measured_in, show_figures

if TYPE_CHECKING:
    from client_sdk import OperatorClient

app = typer.Typer(cls=Group, no_args_is_help=True, help="Create, start and watch federations.")
_FLAGS = {
    "name": "--name",
    "recipe": "--recipe",
    "prototypes": "--architecture",
    "task": "--classes with --input-shape",
    "task.num_classes": "--classes",
    "task.input": "--input-shape",
    "task.input.shape": "--input-shape",
}
Ref = Annotated[str, typer.Argument(metavar="FEDERATION", help="A federation's id or name.")]
BodyFile = Annotated[
    Path | None, typer.Option(help="JSON body of POST /v1/federations; other options are laid over it.")
]
PrototypeOptions = Annotated[
    list[str] | None,
    typer.Option(help="""Any other field of prototypes[0] key=value, such as 'trains=["head.*"]' or lora=a_frozen."""),
]
ClientsPerRound = Annotated[str | None, typer.Option(help="Devices asked per round: a count or a fraction.")]
RoundOptions = Annotated[
    list[str] | None,
    typer.Option(help="Any other field of rounds key=value, such as on_deadline=extend or gate.max_drop=0.02."),
]


def resolve(client: "OperatorClient", ref: str) -> str:
    """Return the id of the federation that is meant by an id or a name.

    Raises:
        CliError: no federation has the name.
    """
    if ref.startswith("fed_"):
        return ref
    names = {item.name: item.id for item in client.each(client.federations)}
    if ref not in names:
        known = ", ".join(sorted(names)[:10]) or "none yet"
        raise CliError(f"there is no federation named {ref!r}; there are: {known}", exits.MISSING)
    return names[ref]


def _shape(text: str | None) -> list[int] | None:
    if not text:
        return None
    try:
        return [int(edge) for edge in text.split(",")]
    except ValueError:
        raise CliError(f"--input-shape {text!r} is not a list of whole numbers; write 1,8,8") from None


def _number(text: str | None) -> int | float | None:
    """Return a count or a fraction: '4' is a count, '0.4' and '1.0' are fractions."""
    if text is None:
        return None
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        raise CliError(
            f"--clients-per-round {text!r} is neither a count such as 4 nor a fraction such as 0.4"
        ) from None


def _local(recipe: str | None, pairs: list[str]) -> dict[str, Any] | None:
    """Return the recipe's own local plan with the given changes, or None without changes."""
    if not pairs:
        return None
    from contract.recipes.presets import PRESETS

    base = PRESETS[recipe].local.model_dump(mode="json") if recipe in PRESETS else {}
    return merge(base, nest(parse_options(pairs, "--local")))


def _drop_empty(tree: dict[str, Any]) -> dict[str, Any]:
    kept = {key: _drop_empty(value) if isinstance(value, dict) else value for key, value in tree.items()}
    return {key: value for key, value in kept.items() if value not in (None, {}, [])}


def body(spec: dict[str, Any]) -> FederationCreate:
    """Return the checked request.

    Raises:
        CliError: what is missing or wrong, by field.
    """
    try:
        return FederationCreate.model_validate(spec, context=ELSEWHERE)
    except ValidationError as error:
        lines = [_fault(*each) for each in faults_of(error, spec)]
        raise CliError("; ".join(dict.fromkeys(lines)) + "; see potstill federation create --help") from None


def _fault(field: str, message: str) -> str:
    flag = _FLAGS.get(field)
    if flag and message == "is missing":
        return f"{flag} is missing"
    return f"{field or 'federation'}: {message}"


def _created(client: "OperatorClient", spec: FederationCreate) -> FederationCreated:
    """Create the federation; a data set that is missing or wrong is called by its option here."""
    from client_sdk.errors import InvalidField

    try:
        return client.create_federation(spec)
    except InvalidField as error:
        options = [f"--{name}" for name in DatasetRefs.model_fields if f"datasets.{name}" in error.detail]
        if not options:
            raise
        raise CliError(f"{error}; on the command line: {', '.join(options)}") from error


@app.command()
def create(
    name: Annotated[str | None, typer.Option(help="Name, unique on the service.")] = None,
    file: BodyFile = None,
    recipe: Annotated[str | None, typer.Option(help="fedavg, feddf, fedgo, ...")] = None,
    option: Annotated[list[str] | None, typer.Option(help="Recipe option key=value, such as link=sigmoid.")] = None,
    architecture: Annotated[str | None, typer.Option(help="Network that devices train, such as cnn-digits.")] = None,
    architecture_option: Annotated[list[str] | None, typer.Option(help="Its option key=value.")] = None,
    prototype_option: PrototypeOptions = None,
    initial_model: Annotated[str | None, typer.Option(help="Id of an imported model to start from.")] = None,
    input_shape: Annotated[str | None, typer.Option(help="Shape of one sample, such as 1,8,8.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, float16, uint8, or int64 for token ids.")] = None,
    task: Annotated[str | None, typer.Option(help="classification, multilabel, regression, dense or tokens.")] = None,
    classes: Annotated[int | None, typer.Option(help="Number of classes, labels or values.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds.")] = None,
    clients_per_round: ClientsPerRound = None,
    min_updates: Annotated[int | None, typer.Option(help="Fewer at the deadline: the round is skipped.")] = None,
    min_clients: Annotated[int | None, typer.Option(help="Devices enrolled before the first round.")] = None,
    deadline: Annotated[int | None, typer.Option(help="Seconds a round may take.")] = None,
    round_option: RoundOptions = None,
    target_accuracy: Annotated[float | None, typer.Option(help="Finish early at this test accuracy.")] = None,
    local: Annotated[list[str] | None, typer.Option(help="Local training key=value, such as epochs=5.")] = None,
    unlabeled: Annotated[str | None, typer.Option(help="Server data set to distil on: id or name.")] = None,
    validation: Annotated[str | None, typer.Option(help="Labelled server data set for early stopping.")] = None,
    test: Annotated[str | None, typer.Option(help="Labelled server data set for accuracies.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.")] = None,
    start: Annotated[bool, typer.Option("--start", help="Start it at once.")] = False,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Create a federation and show its join token (once)."""
    given = {
        "name": name,
        "seed": seed,
        "task": {"kind": task, "num_classes": classes, "input": {"shape": _shape(input_shape), "dtype": dtype}},
        "recipe": {"name": recipe, "options": parse_options(option or [])},
        "local": _local(recipe, local or []),
        "rounds": {
            "total": rounds,
            "clients_per_round": _number(clients_per_round),
            "min_updates": min_updates,
            "min_clients": min_clients,
            "deadline_seconds": deadline,
            "target_accuracy": target_accuracy,
            **nest(parse_options(round_option or [], "--round-option")),
        },
        "datasets": {"unlabeled": unlabeled, "validation": validation, "test": test},
    }
    spec = merge(read_object(file, "the body of POST /v1/federations") if file else {}, _drop_empty(given))
    if prototype := _prototype(architecture, architecture_option, prototype_option, initial_model):
        spec["prototypes"] = [prototype]
    with operator(url, token) as client:
        made = _created(client, body(spec))
        if start:
            begun = client.start_federation(made.id)
            made = made.model_copy(update={name: getattr(begun, name) for name in type(begun).model_fields})
    show_one(made, as_json, lambda made: _welcome(made, find_url(url), start))


def _prototype(
    architecture: str | None, options: list[str] | None, parts: list[str] | None, initial_model: str | None
) -> dict[str, Any]:
    """Return what was said of the network that devices train; empty for nothing."""
    given = {"architecture": architecture, "options": parse_options(options or [], "--architecture-option")}
    told = nest(parse_options(parts or [], "--prototype-option"))
    return _drop_empty({**given, "initial_model": initial_model, **told})


def show_notes(notes: Sequence[Note]) -> None:
    """Print what became of a request otherwise than it was asked for."""
    for note in notes:
        out().print(f"note: {printable(str(note))}", highlight=False)


def _welcome(made: FederationCreated, url: str, started: bool) -> None:
    """Print a new federation, its join token and what to do next."""
    console = out()
    console.print(f"created {made.name}  {made.id}  ({made.recipe}, {made.rounds_total} rounds)")
    show_notes(made.notes)
    console.print(f"join token (shown this once): {made.join_token}")
    console.print(
        f"a device joins with: potstill client run --url {url} --federation {made.id} "
        f"--join-token {made.join_token} --data FILE --name NAME"
    )
    if not started:
        console.print(f"next: potstill federation start {made.name}")


@app.command("list")
def list_(url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """List federations."""
    with operator(url, token) as client:
        items = list(client.each(client.federations))
    show_list(
        items,
        as_json,
        ["name", "id", "recipe", "state", "round", "clients", "measured"],
        lambda f: [f.name, f.id, f.recipe, f.state, f"{f.round}/{f.rounds_total}", f.clients, measured_in(f)],
    )


def _why(federation: Federation) -> str:
    known = (federation.error, federation.detail, federation.waiting_for and f"waiting for {federation.waiting_for}")
    return ": ".join(part for part in known if part)


def _show(federation: Federation) -> None:
    facts: list[list[Any]] = [
        ["id", federation.id],
        ["state", federation.state + (f" ({why})" if (why := _why(federation)) else "")],
        ["recipe", federation.recipe],
        ["task", in_words(federation.task)],
        ["prototypes", federation.called(", ".join(p.shown for p in federation.prototypes))],
        ["round", f"{federation.round} of {federation.rounds_total}"],
        ["clients", federation.clients],
        *([["discriminators", federation.discriminators]] if federation.composition.reads_scores else []),
        *[[f"model {name}", ref.id] for name, ref in federation.models.items()],
    ]
    print_table([federation.name, ""], facts)
    show_notes(federation.notes)
    show_figures(federation)


def how_far(job: Job) -> str | None:
    """Say how far a running job is, once it has told."""
    at = job.progress
    if at is None:
        return None
    left = "" if at.eta is None else f", about {at.eta:.0f} s left"
    return f"{at.phase}, {at.step} of {at.of}{left}"


def _work(client: "OperatorClient", found: Federation) -> str | None:
    """Say what the worker does for a federation, or what it waits for: a worker, or devices."""
    running = list(client.each(client.jobs, state="running"))
    queued = list(client.each(client.jobs, state="queued"))
    for job in running:
        if job.federation_id == found.id:
            return f"now: {how_far(job) or job.kind}"
    if any(job.federation_id == found.id for job in queued):
        if running:
            return f"waiting for a worker: {len(running)} job(s) of other federations run"
        return "waiting for a worker"
    if found.state == "running" and found.current_round is not None:
        newest = client.round(found.current_round)
        if newest.state == "collecting":
            until = f"{newest.deadline_at.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
            answered = f"{newest.answered} of {newest.asked} devices answered"
            return f"now: round {newest.index} collects until {until}, {answered}"
    return None


@app.command()
def show(federation: Ref, url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """Show one federation with its accuracy per round."""
    with operator(url, token) as client:
        found = client.federation(resolve(client, federation))
        work = None if as_json else _work(client, found)
    if as_json:
        print_json(found)
        return
    _show(found)
    if work:
        out().print(work)


@app.command()
def join_token(
    federation: Ref,
    max_uses: Annotated[int | None, typer.Option(min=1, help="Devices that may enrol with it; default: any.")] = None,
    days: Annotated[float | None, typer.Option(min=0.001, help="Its life in days; default: the service's.")] = None,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Make a new join token; the one before stops working."""
    with operator(url, token) as client:
        found = resolve(client, federation)
        fresh = client.rotate_join_token(found, max_uses=max_uses, valid_seconds=seconds(days))
    if as_json:
        print_json({"join_token": fresh})
    else:
        out().print(fresh)


@app.command()
def watch(
    federation: Ref,
    history: Annotated[int, typer.Option(min=0, max=500, help="Begin with the newest so many events.")] = 20,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Show what happens, line by line, until the federation is over (Ctrl-C stops earlier)."""
    with operator(url, token) as client:
        id_ = resolve(client, federation)
        state = client.federation(id_).state
        if state in TERMINAL_STATES:
            for event in client.event_page(id_, newest=history, limit=500).items:
                tell(event, as_json)
            exits.end(state)
            return
        for event in client.events(id_, newest=history):
            tell(event, as_json)
            ends = event.kind.startswith("federation.") and event.data.get("state") in TERMINAL_STATES
            if ends and (state := client.federation(id_).state) in TERMINAL_STATES:  # or it was revived since
                exits.end(state)
                return


def tell(event: Event, as_json: bool) -> None:
    """Print one event as a line."""
    if as_json:
        print(event.model_dump_json(), flush=True)
        return
    moment = f"{event.at.astimezone(UTC):%H:%M:%SZ}"
    print(f"{moment}  {printable(f'{event.kind:<22} {_say(event.data)}').rstrip()}", flush=True)


def _say(data: dict[str, Any]) -> str:
    """Return what is worth a glance: who, which round, how far, why."""
    said = [
        str(data[name])
        for name in ("client", "job", "what", "phase", "device", "prototype", "host", "problem")
        if data.get(name)
    ]
    if "round" in data:
        said.insert(0, f"round {data['round']}")
    if "answered" in data:
        said.append(f"{data['answered']} of {data.get('asked')} answered")
    if data.get("accuracy") is not None:
        said.append(f"accuracy {percent(data['accuracy'])}")
    if data.get("measured") is not None:
        said.append(f"{data.get('metric')} {main_figure(data)}")
    why = data.get("reason") or data.get("detail")
    return ", ".join(said) + (f": {why}" if why else "")
