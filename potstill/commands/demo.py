"""`potstill demo`, `potstill evidence` and `potstill bench`: the whole thing on real images, and its figures."""

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


def evidence(
    only: Annotated[list[str] | None, typer.Option(help="One experiment, such as t1 or d1; may be repeated.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, max=20, help="Seeds 0 to N-1; else each its own number.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of D1's federations; the bars are for 10.")] = 10,
    report: Annotated[Path, typer.Option(help="Folder for raw results and logs.")] = Path("evidence-report"),
    page: Annotated[Path, typer.Option(help="The page to write, with its plots beside it.")] = Path("docs/evidence.md"),
    data_dir: Annotated[
        Path | None,
        typer.Option(envvar="POTSTILL_DATA_DIR", help="Folder of mnist, cifar10 and agnews; else left out."),
    ] = None,
) -> None:
    """The papers' claims as experiments with bars; rewrites the evidence page."""
    from potstill.evidence.run import run

    raise typer.Exit(run(only or [], seeds, rounds, report, page, data_dir))


def bench(
    uploads: Annotated[int, typer.Option(min=1, help="Concurrent uploads.")] = 8,
    megabytes: Annotated[int, typer.Option(min=1, help="Size of each.")] = 500,
) -> None:
    """Measure start time, memory and upload rate of the API process."""
    from potstill.bench import run

    raise typer.Exit(run(uploads=uploads, megabytes=megabytes))
