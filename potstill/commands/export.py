"""`potstill export`: a federation's rounds, parameters and figures for programs that compare runs."""

from pathlib import Path
from typing import Annotated

import typer

from potstill.commands.federation import Ref, resolve
from potstill.connection import Token, Url, operator
from potstill.console import Group, out
from potstill.tracking.places import sinks
from potstill.tracking.runs import Sink

app = typer.Typer(cls=Group, no_args_is_help=True, help="Rounds and figures for TensorBoard and MLflow.")
Follow = Annotated[bool, typer.Option("--follow", help="Go on with each round when it is over, until the last.")]


@app.command("tensorboard")
def tensorboard(
    federation: Ref,
    folder: Annotated[Path, typer.Argument(help="Folder for `tensorboard --logdir`.")],
    follow: Follow = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Write a federation's figures as TensorBoard's event files; what is there is not written again."""
    (sink,) = sinks(folder, None)
    _export(federation, sink, str(folder), follow, url, token)


@app.command("mlflow")
def mlflow(
    federation: Ref,
    uri: Annotated[str, typer.Argument(help="As MLFLOW_TRACKING_URI: http://host:5000, sqlite:///mlflow.db.")],
    follow: Follow = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Write a federation's parameters and figures to MLflow; what is there is not written again."""
    (sink,) = sinks(None, uri)
    _export(federation, sink, uri, follow, url, token)


def _export(ref: str, sink: Sink, where: str, follow: bool, url: str | None, token: str | None) -> None:
    from potstill.tracking.federations import Copy

    with operator(url, token) as client:
        copy = Copy(client, resolve(client, ref), sink)
        if follow:
            copy.follow()
        else:
            copy.go()
            copy.end()
    out().print(f"{copy.rounds} rounds are new in {where}")
