"""`potstill model`: list models, import weights, choose what devices get."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contract.whole import digest_of
from contract.wire.rounds import Model
from potstill import exits
from potstill.commands.federation import resolve
from potstill.connection import Token, Url, operator
from potstill.console import CliError, Group, Json, out, show_list, show_one, size
from potstill.figures import main_figure

if TYPE_CHECKING:
    from client_sdk import OperatorClient

app = typer.Typer(cls=Group, no_args_is_help=True, help="List models, import weights, choose what devices get.")


@app.command("list")
def list_(
    federation: Annotated[str | None, typer.Option(help="A federation's id or name.")] = None,
    prototype: Annotated[str | None, typer.Option(help="One of its prototypes.")] = None,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """List models, the oldest first; the current ones are what devices get."""
    with operator(url, token) as client:
        id_ = None if federation is None else resolve(client, federation)
        items = list(client.each(client.models, federation=id_, prototype=prototype))
    show_list(
        items,
        as_json,
        ["id", "role", "prototype", "round", "measured", "current"],
        lambda m: [m.id, m.role, m.prototype, m.round, main_figure(m.metrics), m.current],
    )


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="Weights as a .safetensors file.")],
    architecture: Annotated[
        str | None, typer.Option(help="What it is the weights of, a name of GET /v1/architectures such as cnn-digits.")
    ] = None,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Upload weights, for a federation to start from or as its generator."""
    if not file.is_file():
        raise CliError(f"there is no file {file}")
    with operator(url, token) as client:
        show_one(client.import_model(file, architecture=architecture), as_json, _tell_imported)


def _tell_imported(model: Model) -> None:
    out().print(f"imported {model.id}  ({size(model.size)}, {model.digest})")
    out().print(f"start from it: potstill federation create --initial-model {model.id}")


@app.command()
def download(
    model: Annotated[str, typer.Argument(help="A model's id, or a federation's id or name for its current model.")],
    file: Annotated[Path | None, typer.Argument(help="Where to write it; default: MODEL.safetensors here.")] = None,
    prototype: Annotated[str | None, typer.Option(help="Of a federation with several: whose model.")] = None,
    trained: Annotated[bool, typer.Option("--trained", help="Only the tensors that devices train.")] = False,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Download a model's weights; goes on where it broke off, and checks the digest."""
    target = file or Path(f"{model}.safetensors")
    with operator(url, token) as client:
        found = client.model(model if model.startswith("mdl_") else _current(client, model, prototype))
        client.download(found if trained or found.base is None else found.id, target)
    digest = digest_of(target)
    show_one(found, as_json, lambda m: out().print(f"{target}: {m.id} ({size(target.stat().st_size)}, {digest})"))


def _current(client: "OperatorClient", ref: str, prototype: str | None) -> str:
    """Return the id of a federation's current model.

    Raises:
        CliError: it has none yet, or several and none was named.
    """
    models = client.federation(resolve(client, ref)).models
    if prototype is None and len(models) == 1:
        return next(iter(models.values())).id
    if prototype in models:
        return models[prototype].id
    known = ", ".join(models) or "none yet"
    raise CliError(f"{ref}: name a model by --prototype; there are: {known}", exits.MISSING)


@app.command()
def promote(
    model_id: str,
    federation: Annotated[str | None, typer.Option(help="For an imported model: which is to have it.")] = None,
    prototype: Annotated[str | None, typer.Option(help="For an imported model, where there are several.")] = None,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Make a model what devices get next; a round that collects begins again."""
    with operator(url, token) as client:
        id_ = None if federation is None else resolve(client, federation)
        found = client.promote_model(model_id, federation=id_, prototype=prototype)
    show_one(found, as_json, lambda m: out().print(f"{m.id}: current model of {m.prototype}"))
