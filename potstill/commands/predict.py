"""`potstill predict` and `potstill round ensemble`: what models, and a round's models together, say of a data set."""

import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contract.outputs import check_place
from contract.wire.ensembles import Ensemble, Prediction
from contract.wire.federations import Federation
from potstill import exits
from potstill.commands.federation import resolve
from potstill.connection import Token, Url, operator
from potstill.console import CliError, Json, out, percent, print_json, print_table, show_one, size
from potstill.figures import measured

if TYPE_CHECKING:
    from rich.progress import Progress

    from client_sdk import OperatorClient

_LOOK_SECONDS = 0.5


def predict(
    what: Annotated[
        str, typer.Argument(metavar="WHAT", help="A federation's id or name, or the file of a downloaded ensemble.")
    ],
    dataset: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="A registered data set: name, id or digest; with a file, .npz or .safetensors."
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The safetensors file to write.")],
    ensemble: Annotated[bool, typer.Option("--ensemble", help="With a round's ensemble, not one model.")] = False,
    round_: Annotated[int | None, typer.Option("--round", help="Of which round; default: the newest.")] = None,
    prototype: Annotated[str | None, typer.Option(help="Whose model, where there are several.")] = None,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Predict a data set, by a federation's model or ensemble: `logits` [N, C] and `predicted` [N] in one file."""
    if Path(what).is_file():
        if ensemble or round_ is not None or prototype is not None:
            raise CliError(f"{what} is an ensemble's file: leave out --ensemble, --round and --prototype", exits.USAGE)
        typer.echo(f"{what} is a file here, and predicts; name a federation that is called so by its id", err=True)
        _here(Path(what), Path(dataset), output, as_json)
        return
    with operator(url, token) as client:
        wish: dict[str, Any] = {"ensemble": ensemble, "round": round_, "prototype": prototype}
        asked = client.predict(resolve(client, what), dataset, **wish)
        made = _made(client, asked, quiet=as_json)
        if made.state != "done":
            raise CliError(f"{made.id} {made.state}: {made.error}: {made.detail}", exits.FAILED)
        client.download_prediction(made, output)
    show_one(made, as_json, lambda found: _tell(found, output))


def _made(client: "OperatorClient", asked: Prediction, quiet: bool) -> Prediction:
    """Wait until a prediction is made, or has failed, and show how far it is."""
    with _bar(quiet) as bar:
        task = bar.add_task("waits for a worker", total=None)
        while asked.state in ("queued", "running"):
            time.sleep(_LOOK_SECONDS)
            asked = client.prediction(asked.id)
            if asked.progress is not None:
                at = asked.progress
                bar.update(task, description=at.phase, completed=at.step, total=at.of or None)
    return asked


def _bar(quiet: bool) -> "Progress":
    from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), *Progress.get_default_columns()[:2], TimeElapsedColumn())
    return Progress(*columns, console=out(), disable=quiet, transient=True)


def _tell(made: Prediction, output: Path) -> None:
    who = "the ensemble" if made.ensemble else "the model"
    of = "" if made.round is None else f" of round {made.round}"
    right = "" if made.accuracy is None else f", {percent(made.accuracy)} right"
    out().print(f"{output}: {made.num_samples} samples of {made.dataset}, by {who}{of}{right}")


def _here(bundle: Path, data: Path, output: Path, as_json: bool) -> None:
    """Predict with a downloaded ensemble, on this machine."""
    check_place(output)
    from potstill.commands.dataset import as_safetensors
    from potstill.ensembles import load_ensemble

    with tempfile.TemporaryDirectory(prefix="potstill-predict-") as folder, load_ensemble(bundle) as loaded:
        dataset = as_safetensors(data, Path(folder))
        with _bar(as_json) as bar:
            task = bar.add_task("starts", total=None)

            def report(phase: str, step: int, of: int) -> None:
                bar.update(task, description=phase, completed=step, total=of or None)

            made, accuracy = loaded.predict_file(dataset, Path(folder), report)
        part = output.with_name(f".{output.name}.{os.getpid()}.part")
        shutil.copyfile(made, part)
        os.replace(part, output)
    if as_json:
        print_json({"output": str(output), "accuracy": accuracy})
        return
    right = "" if accuracy is None else f", {percent(accuracy)} right"
    out().print(f"{output}: by {len(loaded.document.members)} members together{right}")


def ensemble(
    reference: Annotated[str, typer.Argument(metavar="ROUND", help="Round id, or federation:index.")],
    file: Annotated[
        Path | None, typer.Argument(help="Download it here, a tar file that predicts. It may hold clients' models.")
    ] = None,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Show a round's ensemble, who predicts together and how, and download it."""
    from potstill.commands.round import round_id

    with operator(url, token) as client:
        id_ = round_id(client, reference)
        found = client.ensemble(id_)
        if file is not None:
            client.export_ensemble(id_, file)
        federation = client.federation(found.federation_id)
    show_one(found, as_json, lambda each: _tell_ensemble(each, federation, file))


def _tell_ensemble(found: Ensemble, federation: Federation, file: Path | None) -> None:
    document = found.document
    right = "" if found.accuracy is None else f", {percent(found.accuracy)} right on the test set"
    if found.accuracy is None and found.measured is not None:
        metric = federation.metric
        right = f", {metric.replace('_', ' ')} {measured(found.measured, metric)} on the test set"
    out().print(f"ensemble of round {found.round}: {len(document.members)} members, {size(found.size)}{right}")
    out().print(f"weights: {document.weigh.kind}, outputs combined: {document.combine.kind}")
    if found.reason is not None:
        out().print(f"it does not predict: {found.reason}", style="yellow")
    print_table(
        ["member", "client", "architecture", "samples", "digest"],
        [
            [m.name, m.client, federation.called(m.network.architecture), m.num_samples, m.network.digest]
            for m in document.members
        ],
    )
    if file is not None:
        out().print(f"{file}: predict with it: potstill predict {file} DATA.npz -o predictions.safetensors")
