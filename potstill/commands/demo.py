"""`potstill demo`: the whole thing on real images."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each federation.")] = 10,
    seed: Annotated[int, typer.Option(help="Seed of split, weights and participation.")] = 0,
    report: Annotated[Path, typer.Option(help="Folder for plot, table and logs.")] = Path("demo-report"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the service; 0 takes a free one.")] = 0,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the service running until Ctrl-C.")] = False,
) -> None:
    """Ten devices on real images, FedAvg, FedDF and FedGO side by side."""
    from potstill.demo.run import DemoOptions, run

    raise typer.Exit(run(DemoOptions(rounds=rounds, seed=seed, report=report, port=port, keep=keep)))
