"""`potstill replay` and `potstill round export`: the same bytes again, here or elsewhere."""

from pathlib import Path
from typing import Annotated, Any

import typer

from contract.bundles import inputs_and_outputs
from potstill.commands.config import load_settings
from potstill.console import CliError, Json, out, print_json, print_table

DIFFERS, MISSING = 3, 4


def export(
    reference: Annotated[str, typer.Argument(metavar="ROUND", help="Round id, or federation:index.")],
    file: Annotated[Path, typer.Argument(help="The bundle to write, a tar file. It holds the clients' updates.")],
) -> None:
    """Write a round with all its inputs into one file, for `potstill replay FILE` on another machine."""
    from potstill.replay import bundles
    from potstill.replay.sources import Installation

    source = Installation(load_settings())
    try:
        publication = source.find(reference)
        document = publication.document
        inputs, outputs = inputs_and_outputs(document)
        with source.hold(inputs | outputs) as files:
            gone = inputs - set(files)
            if gone:
                raise CliError(f"{len(gone)} inputs were removed by retention; {_KEEP}")
            bundles.pack(publication, files, file)
        whose = {"federation": document["federation"]["id"], "provenance": publication.digest}
        source.note("round.export", (document["round"] or document["job"])["id"], file=file.absolute(), **whose)
    finally:
        source.close()
    out().print(f"{publication.title}: {len(files)} files in {file}")


_KEEP = "keep updates for some rounds next time: potstill federation retention NAME --updates 5 (docs/data.md)"


def replay(
    reference: Annotated[
        str,
        typer.Argument(
            metavar="WHAT", help="Id of a round, model or job; federation:index; a bundle; with --all a federation."
        ),
    ],
    everything: Annotated[bool, typer.Option("--all", help="All that a federation has published.")] = False,
    as_json: Json = False,
) -> None:
    """Make models again from their recorded inputs and compare: exit code 0 equal, 3 different, 4 files lost."""
    from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn

    from potstill.replay.computing import Computers
    from potstill.replay.run import Report
    from potstill.replay.run import replay as again

    path = Path(reference)
    source, publications = _opened(reference, path, everything)
    reports: list[Report] = []
    console = out()
    try:
        with Computers() as computers, Progress(
            SpinnerColumn(), *Progress.get_default_columns()[:2], TimeElapsedColumn(), console=console, disable=as_json,
            transient=True,
        ) as bar:  # fmt: skip
            task = bar.add_task("replay", total=len(publications))
            for publication in publications:

                def tell(phase: str, step: int, of: int, title: str = publication.title) -> None:
                    bar.update(task, description=f"{title}: {phase} {step}/{of}")

                reports.append(again(publication, source, computers, tell))
                bar.advance(task)
    finally:
        source.close()
    _show(reports, as_json)
    verdicts = {report.verdict for report in reports}
    if verdicts - {"equal"}:
        raise typer.Exit(DIFFERS if "differs" in verdicts else MISSING)


def _opened(reference: str, path: Path, everything: bool) -> tuple[Any, list[Any]]:
    from potstill.replay.sources import Bundle, Installation

    if path.is_file() and not everything:
        bundle = Bundle(path)
        return bundle, [bundle.publication]
    source = Installation(load_settings())
    try:
        found = source.all_of(reference) if everything else [source.find(reference)]
    except BaseException:
        source.close()
        raise
    if not found:
        source.close()
        raise CliError(f"{reference}: nothing was published yet")
    return source, found


def _show(reports: list[Any], as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    "title": report.title,
                    "verdict": report.verdict,
                    "results": [vars(result) for result in report.results],
                    "notes": report.notes,
                }
                for report in reports
            ]
        )
        return
    rows = [
        [report.title, result.what, result.name, result.verdict, result.detail]
        for report in reports
        for result in report.results
    ]
    print_table(["publication", "what", "name", "verdict", "detail"], rows)
    told = {note for each in reports for note in (each.notes if each.verdict == "differs" else each.packages)}
    for note in sorted(told):
        out().print(f"not as it was: {note}", style="yellow")
    if any(report.verdict == "damaged" for report in reports):
        out().print("files are damaged, so that nothing can be said: potstill verify tells what they are", style="red")
    if any(report.verdict == "missing" for report in reports):
        out().print(f"retention has removed inputs: {_KEEP}", style="yellow")
