"""`potstill network`: networks of one's own as data."""

import sys
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from contract.networks import checks
from contract.networks.document import Document, canonical, digest_of
from contract.networks.errors import NetworkError
from contract.wire.networks import RegisteredNetwork
from potstill.connection import Token, Url, operator
from potstill.console import CliError, Group, Json, out, print_json, print_table, show_list, show_one

app = typer.Typer(cls=Group, no_args_is_help=True, help="Networks of your own as data: write, register, look at them.")
Named = Annotated[str, typer.Argument(help="Its name, id or architecture.")]
File = Annotated[Path, typer.Argument(help="A network's document, as export writes it.")]


@app.command()
def export(
    module: Annotated[str, typer.Argument(help="package.module:Name of a class, a function or a module.")],
    input_shape: Annotated[str, typer.Option(help="Edges of one sample, such as 3,32,32.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The document; weights go beside it.")] = Path(
        "net.json"
    ),
    dtype: Annotated[Literal["float32", "int64"], typer.Option(help="Of the samples; int64: token ids.")] = "float32",
    role: Annotated[
        Literal["classifier", "discriminator", "generator"], typer.Option(help="What it is for.")
    ] = "classifier",
    head: Annotated[str | None, typer.Option(help="Part that reads the features, such as fc.")] = None,
    features: Annotated[str | None, typer.Option(help="Part that makes the features, where none is a head.")] = None,
    gives: Annotated[Literal["score", "probability"], typer.Option(help="What a discriminator ends in.")] = "score",
    as_json: Json = False,
) -> None:
    """Write a module's graph as JSON and its weights as safetensors, for a service that has none of its code."""
    from client_sdk import export_network

    edges = _edges(input_shape)
    made = export_network(
        _found(module), edges, output, dtype=dtype, role=role, head=head, features=features, gives=gives
    )
    _show(made, as_json)
    if not as_json:
        out().print(f"written: {output} and {output.with_suffix('.safetensors')}")


@app.command()
def register(
    name: Annotated[str, typer.Argument(help="A prototype names it as net: and this.")],
    file: File,
    weights: Annotated[
        Path | None, typer.Option(help="Its first weights; default: the .safetensors file beside it, if there is one.")
    ] = None,
    initial_model: Annotated[str | None, typer.Option(help="Id of an imported model, in place of a file.")] = None,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Register a document with the service, and the weights that federations start from."""
    read(file)
    beside = file.with_suffix(".safetensors")
    given = weights or (beside if beside.is_file() and initial_model is None else None)
    with operator(url, token) as client:
        start = client.import_model(given).id if given is not None else initial_model
        show_one(client.register_network(file, name, initial_model=start), as_json, _tell)


@app.command("list")
def list_(url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """List the networks that operators have registered."""
    with operator(url, token) as client:
        items = list(client.each(client.networks))
    columns = ["name", "role", "parameters", "reads", "gives", "digest"]
    show_list(items, as_json, columns, lambda n: [n.name, n.facts.role, n.facts.parameters, *_ends(n), n.digest])


@app.command()
def show(network: Named, url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """Show a registered network."""
    with operator(url, token) as client:
        show_one(client.network(network), as_json, _tell)


@app.command()
def remove(network: Named, url: Url = None, token: Token = None) -> None:
    """Remove a network that no federation names."""
    with operator(url, token) as client:
        client.delete_network(network)
    out().print(f"removed {network}")


@app.command()
def check(file: File, as_json: Json = False) -> None:
    """Say what a document is, or what is wrong with it; its shapes where torch is installed."""
    document = read(file)
    inferred = _infer(document, file)
    _show(document, as_json)
    if not inferred:
        typer.echo("its shapes were not looked at: torch is not installed here", err=True)


def read(file: Path) -> Document:
    """Return the document of a file.

    Raises:
        CliError: it is none.
    """
    try:
        return checks.read(file.read_bytes())
    except NetworkError as error:
        raise CliError(f"{file}: {error}") from None


def _infer(document: Document, file: Path) -> bool:
    """Follow the shapes through both graphs; return whether that could be done here.

    Raises:
        CliError: naming the node where they do not fit.
    """
    try:
        from contract.nn.graphs import shapes
    except ImportError:
        return False
    try:
        shapes.check(document)
    except NetworkError as error:
        raise CliError(f"{file}: {error}") from None
    return True


def _edges(text: str) -> list[int]:
    try:
        return [int(edge) for edge in text.split(",")]
    except ValueError:
        raise CliError(f"--input-shape {text!r}: give whole numbers with commas, such as 3,32,32") from None


def _found(name: str) -> Any:
    """Return what a name stands for; modules of this folder are found as by Python itself."""
    place, _, attribute = name.partition(":")
    if not place or not attribute:
        raise CliError(f"{name!r}: name a class, a function or a module as package.module:Name")
    sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(import_module(place), attribute)
    except (ImportError, AttributeError) as error:
        raise CliError(f"{name!r} cannot be imported: {error}") from error
    finally:
        sys.path.pop(0)


def _ends(network: RegisteredNetwork) -> list[str]:
    facts = network.facts
    return [f"{facts.input.dtype} {facts.input.shape}", str(facts.output)]


def _tell(network: RegisteredNetwork) -> None:
    reads, gives = _ends(network)
    rows: dict[str, object] = {"id": network.id, "digest": network.digest, "reads": reads, "gives": gives}
    rows |= {"parameters": network.facts.parameters, "features": network.facts.features}
    rows |= {"first weights": network.initial_model or "none"}
    print_table([network.name, network.facts.role], rows.items())
    out().print(f"use it: potstill federation create {_options(network)}", highlight=False, soft_wrap=True)


def _options(network: RegisteredNetwork) -> str:
    """Return what names a network, and what follows from it, when a federation is created."""
    facts, name = network.facts, f"net:{network.name}"
    if facts.role != "classifier":
        part = "generator" if facts.role == "generator" else "plan"
        return f"--option discriminators.{part}.architecture={name}"
    told = [f"--architecture {name}", f"--input-shape {','.join(map(str, facts.input.shape))}"]
    told += [] if facts.input.dtype == "float32" else [f"--dtype {facts.input.dtype}"]
    return " ".join([*told, f"--classes {facts.output[0]}"] if len(facts.output) == 1 else told)


def _show(document: Document, as_json: bool) -> None:
    counts = Counter(node.op for node in document.train.nodes)
    shown = {
        "digest": digest_of(canonical(document)),
        "role": document.role,
        "input": f"{document.input.dtype} {document.input.shape}",
        "output": str(document.output),
        "features": document.eval.features,
        "tensors": len(document.tensors),
        "nodes": len(document.train.nodes),
        "operators": ", ".join(f"{name} {count}" for name, count in sorted(counts.items())),
    }
    if as_json:
        print_json(shown)
    else:
        print_table(["network", ""], shown.items())
