"""`potstill config` and `potstill migrate`: settings and schema of this installation."""

import os
from typing import Any

from pydantic import SecretStr

from potstill.console import CliError, Json, out, print_json, print_table


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
        wrong = [f"POTSTILL_{'_'.join(map(str, e['loc'])).upper()}: {e['msg']}" for e in error.errors()]
        raise CliError("; ".join(wrong)) from None
    except ValueError as error:  # a POTSTILL_*_FILE that cannot be read
        raise CliError(str(error)) from None


def masked(name: str, value: Any) -> Any:
    """Return a setting as it may be shown: no secret, no password inside an address."""
    from urllib.parse import urlsplit, urlunsplit

    if isinstance(value, SecretStr):
        return "********" if value.get_secret_value() else ""
    if isinstance(value, str) and "://" in value:
        parts = urlsplit(value)
        if parts.password:
            user, _, host = parts.netloc.rpartition("@")
            return urlunsplit(parts._replace(netloc=f"{user.split(':')[0]}:********@{host}"))
    return value if isinstance(value, bool | int | float | None) else str(value)


def _source(name: str) -> str:
    if f"{name}_FILE" in os.environ:
        return "file"
    return "environment" if name in os.environ else "default"


def config(as_json: Json = False) -> None:
    """Show every setting, where it comes from the environment as POTSTILL_*; secrets are masked."""
    settings = load_settings()
    values = {name: masked(name, getattr(settings, name)) for name in type(settings).model_fields}
    if as_json:
        print_json(values)
        return
    rows = [[f"POTSTILL_{name.upper()}", value, _source(f"POTSTILL_{name.upper()}")] for name, value in values.items()]
    print_table(["setting", "value", "from"], rows)


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

    from service.operations import consuming
    from service.persistence.engine import Database

    database = Database(settings)
    try:
        with database.read() as session:
            verdict = consuming.worker_here(session)
    except SQLAlchemyError as error:
        raise CliError(f"the database does not answer: {type(error).__name__}") from error
    finally:
        database.close()
    if not verdict.ok:
        raise CliError(verdict.detail)
    out().print(verdict.detail)
