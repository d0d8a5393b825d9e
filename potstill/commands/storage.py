"""`potstill gc`, `verify`, `backup`, `restore`: the files of this machine's installation."""

import contextlib
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from potstill.commands.config import load_settings
from potstill.console import CliError, Json, out, print_json, print_table, size

WRONG = 3


@contextlib.contextmanager
def _store(settings: Any) -> Iterator[tuple[Any, Any]]:
    """Yield database and blobs of the installation of some settings.

    Raises:
        CliError: there is none.
        SchemaError: its schema is another.
    """
    from service.infra.blob_store import open_blobs
    from service.persistence import migrate

    if settings.database_url is None and not (settings.home / "potstill.db").exists():
        raise CliError(f"there is no installation in {settings.home.absolute()}; set POTSTILL_HOME")
    with migrate.checked(settings) as database:
        yield database, open_blobs(settings).store


@contextlib.contextmanager
def _bar(what: str, hidden: bool) -> Iterator[Callable[[int, int], None]]:
    from rich.progress import Progress

    with Progress(console=out(), transient=True, disable=hidden) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, of: progress.update(task, completed=done, total=of)


def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    older_than: Annotated[
        float, typer.Option(min=0, help="Seconds since a file was written; a younger one may be named in a moment.")
    ] = 3600.0,
    as_json: Json = False,
) -> None:
    """Remove files of weights that nothing names any more (the service does it by itself every ten minutes)."""
    from potstill.storage.acts import note
    from potstill.storage.check import collect

    rows: list[list[Any]] = []
    with _store(load_settings()) as (database, blobs), _bar("collect", as_json) as bar:

        def found(digest: str, count: int) -> None:
            rows.append([digest, count])
            bar(len(rows), 0)

        total = collect(database, blobs, older_than, dry_run, found)
        if not dry_run:
            note(database, "installation.gc", "blobs", files=len(rows), bytes=total)
    if as_json:
        print_json({"removed": not dry_run, "bytes": total, "blobs": [{"digest": d, "size": n} for d, n in rows]})
        return
    if rows:
        print_table(["digest", "bytes"], rows)
    out().print(f"{len(rows)} files, {size(total)}" + (" would go" if dry_run else " removed"))


def verify(
    repair: Annotated[
        bool, typer.Option("--repair", help="Say what would be done about what is wrong; with --yes do it.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --repair: do it.")] = False,
    as_json: Json = False,
) -> None:
    """Check the database and read all weights and data sets: exit code 3 if anything is missing or damaged."""
    from potstill.storage import check

    if yes and not repair:
        raise CliError("--yes goes with --repair")
    settings = load_settings()
    file = settings.database_file
    broken = check.verify_database(file) if file is not None and file.exists() else []
    if any(each.what == "database" for each in broken):
        _show_verified(check.Verified(findings=broken), [], as_json)
        raise typer.Exit(WRONG)
    with _store(settings) as (database, blobs):
        with _bar("verify", as_json) as bar:
            found = check.look(database, blobs, bar)
        found.findings = broken + found.findings
        steps = check.repair(database, blobs, found, really=yes) if repair else []
        if repair:
            steps += _unnamed(database, blobs, really=yes)
    _show_verified(found, steps, as_json, done=yes)
    left = [step for step in steps if step.act == "by hand"] if yes else found.findings
    if left or any(each.what in ("reference", "provenance") for each in found.findings):
        raise typer.Exit(WRONG)


def _unnamed(database: Any, blobs: Any, really: bool) -> list[Any]:
    """Remove files that nothing has named for a while, or only say which."""
    from potstill.storage.check import UNNAMED_SECONDS, collect
    from service.operations.upkeep.repair import Step

    steps: list[Any] = []

    def tell(digest: str, count: int) -> None:
        steps.append(Step(digest, "remove", f"a file that nothing names, {size(count)}"))

    collect(database, blobs, UNNAMED_SECONDS, not really, tell)
    return steps


def _show_verified(found: Any, steps: list[Any], as_json: bool, done: bool = False) -> None:
    findings = found.findings
    if as_json:
        body = {"checked": found.checked, "findings": [vars(each) for each in findings]}
        body |= {"unnamed": len(found.unnamed), "steps": [vars(each) for each in steps], "done": done}
        print_json(body)
        return
    if findings:
        print_table(["digest", "what", "state"], [[each.digest, each.what, each.state] for each in findings])
    if steps:
        print_table(["digest", "done" if done else "would do", "about", "remedy"], [
            [each.digest, each.act, each.title, each.remedy] for each in steps
        ])  # fmt: skip
    if any(each.what == "database" for each in findings):
        from service.persistence.engine import DAMAGED

        out().print(DAMAGED, style="red")
    elif findings and steps:
        out().print("what is to be done by hand is left" if done else "to do this: potstill verify --repair --yes")
    elif findings:
        wrong = f"{len(findings)} of {found.checked} are wrong"
        out().print(f"{wrong}: see what can be done with potstill verify --repair, or restore a backup", style="red")
    else:
        out().print(f"{found.checked} files and documents are whole")
    if found.unnamed and not steps:
        out().print(f"nothing names {len(found.unnamed)} whole files; the service removes them after an hour")


def backup(
    target: Annotated[
        Path,
        typer.Argument(help="A folder, where the next backup copies only what is new; or a file that ends in .tar."),
    ],
    with_secret: Annotated[
        bool, typer.Option("--with-secret", help="Also the key of the token hashes: whoever reads it can forge tokens.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Back up the embedded installation, while it runs: database, weights, data sets."""
    from potstill.storage.acts import note
    from potstill.storage.backup import to_file, to_folder

    settings = load_settings()
    write = to_file if target.suffix == ".tar" and not target.is_dir() else to_folder
    with _bar("backup", as_json) as bar:
        made, new = write(settings, target.absolute(), with_secret, bar)
    with _store(settings) as (database, _):
        note(database, "installation.backup", str(target.absolute()), with_secret=with_secret, bytes=made.total)
    if as_json:
        print_json({"target": str(target), "blobs": len(made.blobs), "bytes": made.total, "new_bytes": new})
        return
    out().print(f"{len(made.blobs)} files and the database, {size(made.total)}, of which {size(new)} new: {target}")
    if with_secret:
        out().print("the backup holds the key of the token hashes: keep it as safe as the tokens", style="yellow")
    else:
        out().print(
            "without --with-secret: after a restore all tokens are void unless you put secret.key back or set "
            "POTSTILL_SECRET", style="yellow",
        )  # fmt: skip


def restore(
    source: Annotated[Path, typer.Argument(help="What potstill backup wrote.")],
    home: Annotated[
        Path | None, typer.Option(help="The new installation's folder, empty; default POTSTILL_HOME.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make an empty folder an installation from a backup: every file checked, the schema brought to this version."""
    from potstill.home import default_path
    from potstill.storage.restore import restore as again

    load_settings()
    place = (home or default_path()).absolute()
    with _bar("restore", as_json) as bar:
        made = again(source, place, bar)
    if as_json:
        print_json({"home": str(place), "blobs": len(made.blobs), "bytes": made.total, "made_at": str(made.made_at)})
        return
    out().print(
        f"{place} is as it was at {made.made_at:%Y-%m-%d %H:%M:%S} UTC; start it: "
        f"potstill up --home {shlex.quote(str(place))}"
    )
    if not made.has_secret:
        where = shlex.quote(str(place))
        out().print(
            "tokens are void without the old secret.key (or POTSTILL_SECRET); a new one for you: "
            f"POTSTILL_HOME={where} potstill token create --name me --role operator --local", style="yellow",
        )  # fmt: skip
