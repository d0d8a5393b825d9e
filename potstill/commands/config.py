"""`potstill config` and `potstill migrate`: settings and schema of this installation."""

import os
import re
from difflib import get_close_matches
from typing import Annotated, Any

import typer
from pydantic import BaseModel, SecretStr

from potstill.console import CliError, Json, out, print_json, print_table

OTHERS = {
    "POTSTILL_URL": "where the service is, for commands and devices",
    "POTSTILL_TOKEN": "operator's or viewer's token, for commands",
    "POTSTILL_JOIN_TOKEN": "join token, for devices",
    "POTSTILL_DEVICE_TOKEN": "token that was given a device anew, for its next start",
    "POTSTILL_CA_FILE": "PEM file of the certificates that commands and devices trust",
    "POTSTILL_DATA_DIR": "folder of the data sets of simulate",
    "POTSTILL_COMMIT": "commit of the code, for provenance, where there is no clone",
}
"""Variables that are read in other places than `service.config`."""


def load_settings() -> Any:
    """Return the settings of this environment, or say what is wrong with them."""
    try:
        from service import config as service_config
    except ModuleNotFoundError as error:
        raise CliError(f"{error.name} is not installed; pip install '.[service]' in the clone") from error
    from pydantic import ValidationError

    try:
        return service_config.load()
    except ValidationError as error:
        raise CliError("; ".join(_fault(each["loc"], each["msg"]) for each in error.errors())) from None
    except ValueError as error:  # a POTSTILL_*_FILE that cannot be read, or text that is no JSON
        field = re.match(r'error parsing value for field "(\w+)"', str(error))
        raise CliError(f"POTSTILL_{field[1].upper()}: expected JSON" if field else str(error)) from None


def _fault(place: tuple[int | str, ...], message: str) -> str:
    """Return what is wrong with a setting; faults of several together name them by themselves."""
    if not place:
        return message.removeprefix("Value error, ")
    inside = ".".join(map(str, place[1:]))
    return f"POTSTILL_{str(place[0]).upper()}: {f'{inside}: ' if inside else ''}{message}"


def warn_of_unknown(settings: Any) -> None:
    """Say on stderr which POTSTILL_* variables nothing reads: a misspelt setting would else be off without a word."""
    known = {f"POTSTILL_{name.upper()}{end}" for name in type(settings).model_fields for end in ("", "_FILE")}
    known |= OTHERS.keys()
    for name in sorted(name for name in os.environ if name.startswith("POTSTILL_") and name not in known):
        near = get_close_matches(name, known, n=1, cutoff=0.85)
        hint = f"; did you mean {near[0]}?" if near else "; potstill config shows those there are"
        typer.echo(f"warning: nothing reads {name}{hint}", err=True)


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
    warn_of_unknown(settings)
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
    from service.persistence.engine import Database

    database = Database(settings)
    try:
        with database.read() as session:
            verdict = liveness.worker_here(session)
    except SQLAlchemyError as error:
        raise CliError(f"the database does not answer: {type(error).__name__}") from error
    finally:
        database.close()
    if not verdict.ok:
        raise CliError(verdict.detail)
    out().print(verdict.detail)
