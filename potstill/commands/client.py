"""`potstill client`: be a device; and what operators do to devices."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contract.installation import install
from potstill import exits
from potstill.commands.federation import Ref, resolve
from potstill.connection import Token, Url, find_url, operator
from potstill.console import CliError, Group, Json, out, parse_options, percent, print_json, show_list, show_one

if TYPE_CHECKING:
    from client_sdk import Connection, OperatorClient, RunReport
    from contract.wire.devices import ClientInfo

app = typer.Typer(
    cls=Group, no_args_is_help=True, help="Be a device on this machine; for operators: the devices of a federation."
)
DeviceRef = Annotated[str, typer.Argument(metavar="DEVICE", help="A device's id or name.")]
JoinToken = Annotated[str | None, typer.Option(envvar="POTSTILL_JOIN_TOKEN", help="Needed the first time only.")]
DeviceToken = Annotated[
    str | None, typer.Option(envvar="POTSTILL_DEVICE_TOKEN", help="A token given anew (client reissue); needed once.")
]
LabelCounts = Annotated[
    str | None, typer.Option(help="Samples per class, such as 30,0,12; only for federations that weigh by labels.")
]
CaFile = Annotated[Path | None, typer.Option(envvar="POTSTILL_CA_FILE", help="PEM file of the certificates to trust.")]
InsecureHttp = Annotated[
    bool, typer.Option("--insecure-http", help="Allow plain HTTP to another machine: the token can be read.")
]
Direct = Annotated[
    bool, typer.Option("--direct", help="Upload straight into the service's bucket, where it offers that.")
]
Classes = Annotated[
    str | None,
    typer.Option(help="Your classes in the order of your labels, such as cat,dog,fox; if the task has names."),
]
Capability = Annotated[
    list[str] | None,
    typer.Option(help="What the device has, key=value such as memory_mb=2048; decides between several networks."),
]


@app.command()
def run(
    federation: Annotated[str, typer.Option(help="Id or name of the federation.")],
    data: Annotated[Path, typer.Option(help=".npz or .safetensors with 'inputs' and 'labels'.")],
    name: Annotated[str | None, typer.Option(help="This device's name; default: the host's name.")] = None,
    join_token: JoinToken = None,
    token: DeviceToken = None,
    state_dir: Annotated[Path | None, typer.Option(help="Where the device keeps its token and its work.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps")] = "auto",
    rounds: Annotated[int | None, typer.Option(help="Stop after so many rounds.")] = None,
    label_counts: LabelCounts = None,
    ca_file: CaFile = None,
    insecure_http: InsecureHttp = False,
    direct: Direct = False,
    classes: Classes = None,
    prototype: Annotated[str | None, typer.Option(help="Which of several networks to train.")] = None,
    capability: Capability = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Enrol, then train and upload round after round until the federation is over."""
    if not data.is_file():
        raise CliError(f"there is no file {data}")
    address = find_url(url)
    if not as_json:
        typer.echo(f"a device for {federation} of {address}; loading PyTorch", err=True)
    try:
        import torch  # noqa: F401  # only to say what to install
    except ModuleNotFoundError as error:
        raise CliError(f"a device needs PyTorch: {install('client')}") from error
    from client_sdk import Connection, train_and_push

    connection = Connection(address, token, ca_file=ca_file, insecure_http=insecure_http or None, direct=direct)
    report = train_and_push(
        connection,
        data,
        federation=_federation_id(connection, federation, join_token),
        join_token=join_token,
        name=name,
        rounds=rounds,
        device=device,
        state_dir=state_dir,
        progress=not as_json,
        label_counts=_counts(label_counts),
        classes=None if classes is None else [name.strip() for name in classes.split(",")],
        prototype=prototype,
        capabilities=parse_options(capability or [], "--capability"),
    )
    if as_json:
        print_json(asdict(report))
    else:
        out().print(summary(report), soft_wrap=True)
    exits.end(report.state)


def _federation_id(connection: "Connection", ref: str, join_token: str | None) -> str:
    """Return the id of the federation that is meant by an id or a name; a device's token or join token knows it.

    Raises:
        CliError: a name, and no token.
    """
    from client_sdk import Client

    if ref.startswith("fed_"):
        return ref
    if connection.token is None and join_token is None:
        raise CliError(
            f"--federation {ref}: a name is looked up with --join-token or --token; or give the id, fed_…", exits.TOKEN
        )
    with Client(connection) as client:
        return client.card(ref, join_token=connection.token or join_token).federation_id


def _counts(text: str | None) -> list[int] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise CliError(f"--label-counts {text!r}: give whole numbers with commas between them, such as 30,0,12")
    return [int(part) for part in parts]


def summary(report: "RunReport") -> str:
    """Return a run report as one line."""
    accuracy = "" if report.accuracy is None else f"; accuracy of the final model {percent(report.accuracy)}"
    spent = "" if report.epsilon is None else f"; epsilon spent {report.epsilon:.2f}"
    model = "" if report.model_path is None else f"\nits model: {report.model_path}"
    taken = f"{report.rounds_trained} updates of {report.client_name} taken"
    return f"federation {report.state}; {taken}{accuracy}{spent}{model}"


def _samples(client: "ClientInfo") -> str:
    """Return how many samples a device has; of one that declared another number since it enrolled, that one too."""
    was = "" if client.declared_at is None else f" (was {client.enrolled_samples})"
    return f"{client.num_samples}{was}"


@app.command("list")
def list_(federation: Ref, url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """List a federation's devices: when they were last seen, whether their tokens work."""
    with operator(url, token) as client:
        items = list(client.each(client.clients, resolve(client, federation)))
    show_list(
        items,
        as_json,
        ["name", "id", "prototype", "samples", "updates", "token", "expires", "last seen"],
        lambda c: [
            c.name, c.id, c.prototype, _samples(c), c.updates, c.token_state, c.token_expires_at, c.last_seen_at
        ],
    )  # fmt: skip


def _client_id(client: "OperatorClient", federation_id: str, ref: str) -> str:
    """Return the id of the device that is meant by an id or a name."""
    if ref.startswith("cli_"):
        return ref
    for item in client.each(client.clients, federation_id):
        if item.name == ref and item.revoked_at is None:
            return item.id
    raise CliError(f"no device named {ref!r} is enrolled; potstill client list shows them", exits.MISSING)


@app.command()
def revoke(federation: Ref, device: DeviceRef, url: Url = None, token: Token = None) -> None:
    """Revoke a device: its token stops working at once, rounds no longer wait for it."""
    with operator(url, token) as client:
        found = resolve(client, federation)
        client.revoke_client(found, _client_id(client, found, device))
    out().print(f"revoked {device}")


@app.command()
def reissue(federation: Ref, device: DeviceRef, url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """Give a device a fresh token, shown once; the one before stops working at once."""
    with operator(url, token) as client:
        found = resolve(client, federation)
        made = client.reissue_token(found, _client_id(client, found, device))
    show_one(made, as_json, lambda made: out().print(f"token for {device} (shown this once): {made.token}"))


@app.command()
def assign(
    federation: Ref,
    device: DeviceRef,
    prototype: Annotated[str, typer.Argument(help="Name of one of the federation's prototypes.")],
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Give a device another prototype to train, from the next round on."""
    with operator(url, token) as client:
        found = resolve(client, federation)
        made = client.assign_prototype(found, _client_id(client, found, device), prototype)
    show_one(made, as_json, lambda made: out().print(f"{device} trains {made.prototype} from the next round on"))
