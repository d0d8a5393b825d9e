"""`potstill client`: be a device."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from potstill.connection import Url, find_url
from potstill.console import CliError, Group, Json, out, percent, print_json

if TYPE_CHECKING:
    from client_sdk import RunReport

app = typer.Typer(cls=Group, no_args_is_help=True, help="Run a device on this machine.")


@app.command()
def run(
    federation: Annotated[str, typer.Option(help="Id of the federation.")],
    data: Annotated[Path, typer.Option(help=".npz or .safetensors with 'inputs' and 'labels'.")],
    name: Annotated[str | None, typer.Option(help="This device's name; default: the host's name.")] = None,
    join_token: Annotated[
        str | None, typer.Option(envvar="POTSTILL_JOIN_TOKEN", help="Needed the first time only.")
    ] = None,
    state_dir: Annotated[Path | None, typer.Option(help="Where the device keeps its token and its work.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps")] = "auto",
    rounds: Annotated[int | None, typer.Option(help="Stop after so many rounds.")] = None,
    label_counts: Annotated[
        str | None, typer.Option(help="Samples per class, such as 30,0,12; only for federations that weigh by labels.")
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Enrol, then train and upload round after round until the federation is over."""
    if not data.is_file():
        raise CliError(f"there is no file {data}")
    try:
        import torch  # noqa: F401  # only to say what to install
    except ModuleNotFoundError as error:
        raise CliError("a device needs PyTorch: pip install '.[client]' in the clone") from error
    from client_sdk import train_and_push

    report = train_and_push(
        find_url(url),
        data,
        federation=federation,
        join_token=join_token,
        name=name,
        rounds=rounds,
        device=device,
        state_dir=state_dir,
        progress=not as_json,
        label_counts=_counts(label_counts),
    )
    if as_json:
        print_json(asdict(report))
    else:
        out().print(summary(report))


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
    return f"federation {report.state}; {report.rounds_trained} updates of {report.client_name} taken{accuracy}"
