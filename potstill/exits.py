"""Exit codes of commands: one table, which docs/problems.md shows."""

from typing import Any

import typer

DONE, HERE, USAGE, WRONG, MISSING, REFUSED, TOKEN, UNREACHABLE, FAILED = range(9)
MEANING = {
    DONE: "done",
    HERE: "something here has to be mended: a file, a folder, a variable, the data, the installation",
    USAGE: "the command is not understood",
    WRONG: "checked and found wrong (`verify`, `replay`)",
    MISSING: "no such thing, or it is gone (404, 410; of `replay`: what it needs)",
    REFUSED: "the service refused (403, 409, 413, 422, …)",
    TOKEN: "no token, or one that does not count (401)",
    UNREACHABLE: "no answer, or the service cannot answer now (429, 5xx)",
    FAILED: "the work itself failed: a federation that ended so, training that cannot go on",
}


def of(error: Exception) -> int:
    """Return the exit code for an error that a command ends with."""
    from client_sdk import errors

    code = getattr(error, "code", None)
    if isinstance(code, int):
        return code
    if isinstance(error, errors.ApiError):
        return _of_status(error.status)
    if isinstance(error, errors.TransportError | errors.UnexpectedAnswer):
        return UNREACHABLE
    if isinstance(error, errors.TrainingError | errors.FederationEnded):
        return FAILED
    return HERE


def end(state: str) -> None:
    """End a command that followed a federation to this state.

    Raises:
        typer.Exit: with a code of its own, where the federation failed.
    """
    if state == "failed":
        raise typer.Exit(FAILED)


def _of_status(status: int) -> int:
    if status in (404, 410):
        return MISSING
    if status == 401:
        return TOKEN
    return UNREACHABLE if status == 429 or status >= 500 or status < 400 else REFUSED


def document(error: Exception, message: str, code: int) -> dict[str, Any]:
    """Return an error as a program reads it: the problem's own kind, status and members, where there are some."""
    found = {
        name: getattr(error, name)
        for name in ("kind", "status", "title", "request_id", "members", "field")
        if getattr(error, name, None) not in (None, "", {})
    }
    return {"error": {"message": message, "exit_code": code, **found}}
