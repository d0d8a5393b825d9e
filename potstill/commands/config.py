"""`potstill config` and `potstill migrate`: settings and schema of this installation."""

import contextlib
import os
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel, SecretStr

from contract.faults import faults_of
from contract.installation import install
from contract.json_text import read_json
from potstill.console import CliError, Json, out, print_json, print_table


def load_settings() -> Any:
    """Return the settings of this environment, or say what is wrong with them."""
    try:
        from service import config as service_config
        from service.infra import foreign
    except ModuleNotFoundError as error:
        raise CliError(f"{error.name} is not installed; {install('service')}") from error
    from pydantic import ValidationError

    foreign.forget()
    try:
        return service_config.load()
    except ValidationError as error:
        raise CliError("; ".join(_fault(*each) for each in faults_of(error, _given()))) from None
    except ValueError as error:  # a POTSTILL_*_FILE that cannot be read
        raise CliError(str(error)) from None


def _fault(place: str, message: str) -> str:
    """Return what is wrong with a setting; faults of several together name them by themselves."""
    name, _, inside = place.partition(".")
    return ": ".join(filter(None, (f"POTSTILL_{name.upper()}" if name else "", inside, message)))


def _given() -> dict[str, Any]:
    """Return the settings as they were given, by field: text, or what it says as JSON."""
    from service.config import Settings

    return {name: _said(f"POTSTILL_{name.upper()}") for name in Settings.model_fields}


def _said(name: str) -> Any:
    text, file = os.environ.get(name), os.environ.get(f"{name}_FILE")
    with contextlib.suppress(ValueError, OSError):
        return read_json(Path(file).read_text(encoding="utf-8") if text is None and file else text or "")
    return text


def warn_of_unread() -> None:
    """Say on stderr which POTSTILL_* variables nothing reads."""
    from service.config import unread

    for sentence in unread(os.environ):
        typer.echo(f"warning: {sentence}", err=True)


def masked(value: Any) -> Any:
    """Return a setting as it may be shown: no secret, no password inside an address."""
    from urllib.parse import urlsplit, urlunsplit

    if isinstance(value, SecretStr):
        return "********" if value.get_secret_value() else ""
    if isinstance(value, str) and "://" in value:
        parts = urlsplit(value)
        if parts.password:
            user, _, host = parts.netloc.rpartition("@")
            return urlunsplit(parts._replace(netloc=f"{user.split(':')[0]}:********@{host}"))
    if isinstance(value, BaseModel):
        return value.model_dump_json()
    return value if isinstance(value, bool | int | float | None) else str(value)


def _source(name: str) -> str:
    if f"{name}_FILE" in os.environ:
        return "file"
    return "environment" if name in os.environ else "default"


def config(
    explain: Annotated[bool, typer.Option("--explain", help="Say what each one is.")] = False,
    as_json: Json = False,
) -> None:
    """Show every setting, where it comes from the environment as POTSTILL_*; secrets are masked."""
    settings = load_settings()
    from service.config import OTHERS

    warn_of_unread()
    values = {f"POTSTILL_{name.upper()}": masked(getattr(settings, name)) for name in type(settings).model_fields}
    for name in OTHERS:
        value = os.environ.get(name)
        values[name] = masked(SecretStr(value) if value and name.endswith("TOKEN") else value)
    if as_json:
        print_json({name.removeprefix("POTSTILL_").lower(): value for name, value in values.items()})
        return
    fields = {f"POTSTILL_{name.upper()}": field for name, field in type(settings).model_fields.items()}
    what = {name: field.description for name, field in fields.items()} | OTHERS
    rows = [[name, value, _source(name), *([what[name]] if explain else [])] for name, value in values.items()]
    print_table(["setting", "value", "from", *(["what"] if explain else [])], rows)


def _make_bucket(settings: Any) -> None:
    from service.domain.errors import DomainError
    from service.infra.bucket import Bucket

    try:
        if Bucket(settings).ensure():
            out().print(f"made the bucket {settings.bucket[0]}")
    except DomainError as error:
        raise CliError(f"{settings.blob_url}: {error.detail}") from None


def migrate() -> None:
    """Bring the database to the newest schema, and make a bucket that is not there (`potstill up` needs neither)."""
    settings = load_settings()
    if settings.bucket is not None:
        _make_bucket(settings)
    from potstill.storage.acts import bring_up

    bring_up(settings)
    out().print("the database is at the newest schema")


def worker_health() -> None:
    """Say whether the worker of this host takes jobs; exit 1 if not. For health checks of containers."""
    settings = load_settings()
    from sqlalchemy.exc import SQLAlchemyError

    from service.operations.view import liveness
    from service.persistence import migrate

    try:
        with migrate.checked(settings) as database, database.read() as session:
            verdict = liveness.worker_here(session)
    except SQLAlchemyError as error:
        raise CliError(f"the database does not answer: {type(error).__name__}") from error
    if not verdict.ok:
        raise CliError(verdict.detail)
    out().print(verdict.detail)
