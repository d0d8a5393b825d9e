"""What commands do to an installation without the API leaves rows in its audit log, as changes by requests do."""

import shlex
from pathlib import Path
from typing import Any

from potstill.console import CliError


def note(database: Any, action: str, target: str, **detail: Any) -> None:
    """Write a row about something that a command has just done.

    Args:
        database: of the installation.
        action: what was done, `<thing>.<verb>`.
        target: what it was done to.
        detail: what else is worth knowing, the id of its `federation` among it; never a secret.

    Raises:
        CliError: it is done, but the log cannot be written.
    """
    from sqlalchemy.exc import SQLAlchemyError

    from service.operations.ledger import audit

    try:
        with audit.by_command(database) as session:
            audit.record(session, action, target, **detail)
    except SQLAlchemyError as error:
        reason = getattr(error, "orig", None) or type(error).__name__
        raise CliError(f"{action} {target}: it is done, but the audit log has no row of it: {reason}") from error


def _refuse_another_place(settings: Any) -> None:
    """Look where earlier versions put the database of a folder with a `?` in its path: they cut the path off there.

    Raises:
        CliError: it is there, and none is in the folder.
    """
    home = str(settings.home.resolve())
    old = Path(home.partition("?")[0])
    if settings.database_url is not None or "?" not in home or settings.database_file.exists() or not old.is_file():
        return
    source, target = shlex.quote(str(old)), shlex.quote(str(settings.database_file))
    raise CliError(
        f"the database of {home} is in {old}, where earlier versions put it because of the '?'; other folders whose "
        f"names begin alike may have used the same one. Stop them all, then: cp {source} {target} && chmod 600 {target}"
    )


def bring_up(settings: Any) -> None:
    """Bring the database to the newest schema. The log tells which one it was, unless the database is new."""
    from service.persistence import migrate
    from service.persistence.engine import Database

    _refuse_another_place(settings)
    before, after = migrate.upgrade(settings)
    if before in (None, after):
        return
    database = Database(settings)
    try:
        note(database, "installation.migrate", str(after), before=before)
    finally:
        database.close()
