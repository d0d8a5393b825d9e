"""Settings: environment variables POTSTILL_*, with defaults that run everything from one folder."""

import contextlib
import ipaddress
import os
import secrets
import tempfile
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, SecretStr, model_validator
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from contract.json_text import RepeatedKey, read_json
from contract.log_lines import LogFormat
from contract.private import close_file, private_folder
from contract.wire.retention import Retention

if TYPE_CHECKING:
    from sqlalchemy import URL

MIB = 1024 * 1024


class _Files(PydanticBaseSettingsSource):
    """Settings by file: POTSTILL_SECRET_FILE names a file that holds what POTSTILL_SECRET would.

    That is how Docker and Kubernetes hand out secrets. Both at once is a mistake.
    """

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Return what the file of a field holds, if one is named."""
        name = f"POTSTILL_{field_name.upper()}"
        path = os.environ.get(f"{name}_FILE")
        if path is None:
            return None, field_name, False
        if name in os.environ:
            raise ValueError(f"{name} and {name}_FILE are both set; unset one")
        try:
            return Path(path).read_text(encoding="utf-8").rstrip("\r\n"), field_name, False
        except OSError as error:
            raise ValueError(f"{name}_FILE: {error}") from error

    def __call__(self) -> dict[str, Any]:
        """Return the settings that come by file."""
        found = {name: self.get_field_value(field, name)[0] for name, field in self.settings_cls.model_fields.items()}
        return {name: value for name, value in found.items() if value is not None}


def _from_text(value: Any) -> Any:
    """Return what a setting says that is JSON, in the environment or in a file."""
    try:
        return read_json(value) if isinstance(value, str) else value
    except RepeatedKey:
        raise
    except ValueError:
        raise ValueError("expected JSON") from None


def _in(unit: str, answer: str | None = None) -> JsonDict:
    """Return what a number's field says beside its bounds: the unit, and what a caller meets beyond a limit."""
    return {"unit": unit} if answer is None else {"unit": unit, "answer": answer}


class Settings(BaseSettings):
    """All settings of the service and its workers; `potstill config` prints them."""

    model_config = SettingsConfigDict(env_prefix="POTSTILL_", extra="ignore")

    home: Path = Field(Path(".potstill"), description="folder of the embedded mode: database, blobs, queue, secret")
    database_url: str | None = Field(None, description="SQLAlchemy URL; default: SQLite in the home folder")
    broker_url: str | None = Field(None, description="Celery broker; default: a queue folder in the home folder")
    blob_dir: Path | None = Field(None, description="folder of the weights; default: blobs in the home folder")
    blob_url: str | None = Field(None, description="s3://bucket/prefix to keep the weights in a bucket, not a folder")
    s3_endpoint: str | None = Field(None, description="address of an S3-compatible store; default: AWS")
    s3_public_endpoint: str | None = Field(None, description="its address as devices reach it, for presigned links")
    s3_region: str = Field("us-east-1", description="region of the bucket")
    s3_access_key: SecretStr | None = Field(None, description="key id; default: what AWS_* variables or files say")
    s3_secret_key: SecretStr | None = Field(None, description="the key's secret")
    presign: bool = Field(False, description="devices fetch from and put into the bucket by presigned addresses")
    cache_bytes: int = Field(
        20 * 1024 * MIB,
        ge=MIB,
        description="with a bucket: what a machine's copies of its files may take up, and what files in the making may",
        json_schema_extra=_in("bytes"),
    )
    secret: SecretStr | None = Field(None, description="key of the token hashes; default: secret.key in home")
    secret_previous: SecretStr | None = Field(None, description="the key before; its tokens stay good while it is set")
    device_token_days: float = Field(
        90.0, ge=0, le=3650, description="life of a device's token; 0 for no end", json_schema_extra=_in("days")
    )
    host: str = Field("127.0.0.1", description="address that the service listens on")
    port: int = Field(8080, ge=0, le=65535, description="port that the service listens on; 0 for any free one")
    tls_cert: Path | None = Field(None, description="certificate chain of the service, PEM")
    tls_key: Path | None = Field(None, description="its key, PEM")
    trusted_proxies: str = Field(
        "", description="addresses or networks of proxies, with commas; their X-Forwarded-* headers count"
    )
    insecure_http: bool = Field(False, description="take plain HTTP from other machines; tokens can be read on the way")
    max_upload_bytes: int = Field(
        2 * 1024 * MIB, ge=1024, description="largest body of an upload", json_schema_extra=_in("bytes", "413")
    )
    upload_bytes_per_day: int = Field(
        256 * 1024 * MIB,
        ge=1024,
        description="what a token may send in a day, counted as it comes",
        json_schema_extra=_in("bytes", "429"),
    )
    min_free_bytes: int = Field(
        256 * MIB,
        ge=0,
        description="uploads are refused, and jobs wait, below this much free disk space",
        json_schema_extra=_in("bytes", "507"),
    )
    max_clients: int = Field(
        10_000,
        ge=1,
        description="enrolled devices of one federation",
        json_schema_extra=_in("devices", "409 `limit-reached`"),
    )
    threads: int = Field(
        40,
        ge=4,
        le=1000,
        description="requests that are worked on at a time, with as many database connections",
        json_schema_extra=_in("requests", "the others wait"),
    )
    lease_seconds: float = Field(
        30.0, gt=0, description="a worker that is silent for so long has lost its job", json_schema_extra=_in("seconds")
    )
    job_memory_bytes: int = Field(
        0,
        ge=0,
        description="memory of one job's process; 0 for no limit",
        json_schema_extra=_in("bytes", "the job fails as `out_of_memory`"),
    )
    device: str = Field("auto", description="where networks run: auto, cpu, cuda, cuda:1, …")
    queues: str = Field("cpu,gpu", pattern=r"^(cpu|gpu)(,(cpu|gpu))*$", description="whose jobs this worker does")
    torch_threads: int = Field(
        0, ge=0, le=1024, description="CPU threads of a job; 0 for all cores", json_schema_extra=_in("threads")
    )
    labels_shard_seconds: float = Field(
        60.0,
        ge=0,
        description="several workers share a round's labels that take one of them twice as long or longer, in shards "
        "of about so long; 0: none are shared",
        json_schema_extra=_in("seconds"),
    )
    retention: Annotated[Retention, NoDecode, BeforeValidator(_from_text)] = Field(
        Retention(), description="what is kept of federations that do not say it themselves, as JSON; docs/data.md"
    )
    audit_days: int = Field(
        400,
        ge=31,
        le=36_500,
        description="rows of the audit log older than this are removed",
        json_schema_extra=_in("days"),
    )
    metrics_open: bool = Field(False, description="callers on this machine may read /metrics without a token")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="what is logged, at least: debug, info, warning, error"
    )
    log_format: LogFormat = Field("text", description="lines for people, text, or a JSON object a line, json")

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], *sources: PydanticBaseSettingsSource, **named: PydanticBaseSettingsSource
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read the environment, and files that it names."""
        return (named["init_settings"], named["env_settings"], _Files(settings_cls))

    @model_validator(mode="after")
    def _one_store(self) -> Self:
        if self.blob_url is not None and self.bucket is None:
            raise ValueError("POTSTILL_BLOB_URL must read s3://bucket or s3://bucket/prefix")
        if self.blob_url is not None and self.blob_dir is not None:
            raise ValueError("POTSTILL_BLOB_URL and POTSTILL_BLOB_DIR are both set; unset one")
        return self

    @model_validator(mode="after")
    def _an_address(self) -> Self:
        if self.database_url is not None:
            from sqlalchemy.exc import ArgumentError

            try:
                self.resolved_database_url.get_dialect()
            except (ArgumentError, ValueError):  # without the text: it may hold a password
                raise ValueError(
                    "POTSTILL_DATABASE_URL must read postgresql+psycopg://user:password@host/name "
                    "(characters such as @ / ? # % in a password as %40 %2F %3F %23 %25) or sqlite:////path"
                ) from None
        return self

    @model_validator(mode="after")
    def _safe_ways_in(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("POTSTILL_TLS_CERT and POTSTILL_TLS_KEY belong together; set both")
        try:
            self.proxies  # noqa: B018  # refuses what is no address
        except ValueError as error:
            raise ValueError(f"POTSTILL_TRUSTED_PROXIES: {error}") from None
        return self

    @cached_property
    def proxies(self) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
        """The networks of the trusted proxies."""
        parts = [part.strip() for part in self.trusted_proxies.split(",")]
        return tuple(ipaddress.ip_network(part, strict=False) for part in parts if part)

    @cached_property
    def resolved_database_url(self) -> "URL":
        """The database URL, SQLite in the home folder unless set; made of parts, for a path may hold `?` or `%`."""
        from sqlalchemy import URL, make_url

        if self.database_url is not None:
            return make_url(self.database_url)
        return URL.create("sqlite", database=str(self.home.resolve() / "potstill.db"))

    @property
    def is_sqlite(self) -> bool:
        """Whether the database is SQLite."""
        return self.resolved_database_url.get_backend_name() == "sqlite"

    @property
    def database_file(self) -> Path | None:
        """The file of a SQLite database; None for another one."""
        name = self.resolved_database_url.database
        return Path(name) if self.is_sqlite and name else None

    @cached_property
    def resolved_blob_dir(self) -> Path:
        """The folder of the blobs."""
        return (self.blob_dir or self.home / "blobs").resolve()

    @cached_property
    def bucket(self) -> tuple[str, str] | None:
        """The bucket and the prefix of its keys, empty or ending with a slash; None for a folder."""
        scheme, _, rest = (self.blob_url or "").partition("://")
        name, _, prefix = rest.partition("/")
        if scheme != "s3" or not name:
            return None
        prefix = prefix.strip("/")
        return name, f"{prefix}/" if prefix else ""

    @cached_property
    def cache_dir(self) -> Path:
        """The folder of the local copies of a bucket's blobs, and of files in the making."""
        return (self.home / "cache").resolve()

    @property
    def queue_list(self) -> list[str]:
        """The queues that a worker of these settings serves."""
        return list(dict.fromkeys(self.queues.split(",")))

    @cached_property
    def queue_dir(self) -> Path:
        """The folder of the embedded Celery transport."""
        return (self.home / "queue").resolve()

    @property
    def changed_bell(self) -> Path | None:
        """What a worker rings when devices have something to do; None where the database tells by itself."""
        return self.queue_dir / "changed.bell" if self.is_sqlite and self.broker_url is None else None

    @cached_property
    def key(self) -> bytes:
        """The key of the token hashes; made on first use when none is set.

        Losing it makes every token invalid; leaking it with the database lets tokens be forged.
        """
        if self.secret is not None:
            return _long_enough("POTSTILL_SECRET", self.secret)
        return _kept_secret(self.home / "secret.key")

    @cached_property
    def keys(self) -> tuple[bytes, ...]:
        """The key, and the one before while tokens made under it are to stay good."""
        if self.secret_previous is None:
            return (self.key,)
        return (self.key, _long_enough("POTSTILL_SECRET_PREVIOUS", self.secret_previous))


def _long_enough(name: str, secret: SecretStr) -> bytes:
    text = secret.get_secret_value()
    if len(text) < 16:
        raise ValueError(f"{name} must have at least 16 characters")
    return text.encode()


def _kept_secret(path: Path) -> bytes:
    """Read the secret, or make it; two processes that start together agree on one (link is atomic and exclusive)."""
    if not path.exists():
        private_folder(path.parent)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".secret-")
        try:
            with os.fdopen(handle, "w") as file:
                file.write(secrets.token_hex(32))
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(name, path)
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)  # or the name may be gone after a crash, and every token with it
            finally:
                os.close(folder)
        finally:
            os.unlink(name)
    close_file(path)
    return path.read_bytes()


REMOVED = {
    "auth_failures_per_minute": "100 a minute",
    "cache_dir": "the folder cache in POTSTILL_HOME",
    "checkpoint_max_bytes": "2 GiB",
    "checkpoint_seconds": "20 s",
    "join_token_days": "30 days; each join token can be given another life",
    "keep_events": "the newest 100,000",
    "keep_events_days": "90 days",
    "keep_updates": 'off; POTSTILL_RETENTION={"updates": "all"} does the same',
    "max_attempts": "5",
    "max_connections": "10,000",
    "max_datasets": "1,000",
    "max_event_streams": "500",
    "max_event_streams_per_token": "32",
    "max_federations": "1,000",
    "max_json_bytes": "1 MiB",
    "max_long_polls": "5,000",
    "max_long_polls_per_token": "8",
    "max_models": "1,000",
    "max_open_upload_bytes": "64 GiB, or 32 times POTSTILL_MAX_UPLOAD_BYTES where that is more",
    "max_open_uploads": "8",
    "max_tokens": "1,000",
    "max_upload_idle_seconds": "60 s",
    "poll_seconds": "0.2 s",
    "presign_seconds": "900 s",
    "rate_burst": "1,000 at once",
    "rate_per_second": "50 a second in the long run",
    "requests_at_once": "8",
    "retry_seconds": "2 s, doubling up to 32-fold",
    "s3_timeout_seconds": "20 s",
    "scratch_bytes": "as much as POTSTILL_CACHE_BYTES",
    "stall_seconds": "an hour",
    "sweep_seconds": "1 s",
    "upload_expiry_seconds": "a day",
}
"""Settings that there were, and what holds now in their place."""


OTHERS = {
    "POTSTILL_URL": "where the service is, for commands and devices",
    "POTSTILL_TOKEN": "operator's or viewer's token, for commands",
    "POTSTILL_JOIN_TOKEN": "join token, for devices",
    "POTSTILL_DEVICE_TOKEN": "token that was given a device anew, for its next start",
    "POTSTILL_CA_FILE": "PEM file of the certificates that commands and devices trust",
    "POTSTILL_DATA_DIR": "folder of the data sets of simulate",
    "POTSTILL_COMMIT": "commit of the code, for provenance, where there is no clone",
}
"""Variables that are read in other places."""


def _variables(names: Iterable[str]) -> dict[str, str]:
    return {f"POTSTILL_{name.upper()}{end}": name for name in names for end in ("", "_FILE")}


def unread(environment: Iterable[str]) -> list[str]:
    """Return a sentence for each POTSTILL_* variable that nothing reads: it would else be off without a word."""
    known, gone = _variables(Settings.model_fields).keys() | OTHERS.keys(), _variables(REMOVED)
    said = []
    for name in sorted(name for name in environment if name.startswith("POTSTILL_") and name not in known):
        near = get_close_matches(name, known, n=1, cutoff=0.85)
        if name in gone:
            said.append(f"nothing reads {name} any more; what holds instead: {REMOVED[gone[name]]}")
        elif near:
            said.append(f"nothing reads {name}; did you mean {near[0]}?")
        else:
            said.append(f"nothing reads {name}; potstill config shows those there are")
    return said


def load() -> Settings:
    """Return the settings of this process's environment."""
    return Settings()
