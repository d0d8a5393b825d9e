"""A service in this process: a migrated database (copied, not migrated again), the app, an operator."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from service.config import Settings
from service.infra import clock
from service.infra.blob_folder import open_folder
from service.infra.blobs import Blobs
from service.operations.ledger.unit import Store
from service.persistence import migrate
from service.persistence.engine import Database
from service.persistence.tables import Base
from tests.bucket_server import BucketServer, serve
from tests.databases import databases

from .filled import Filled
from .forge import Forge
from .world import World


@pytest.fixture(scope="session")
def forge() -> Forge:
    return Forge()


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a migrated SQLite database."""
    home = tmp_path_factory.mktemp("template")
    migrate.upgrade(Settings(home=home, database_url=None))
    return home


@pytest.fixture(scope="session")
def filled() -> Iterator[Filled | None]:
    """What makes PostgreSQL databases when the tests run distributed; else None, and SQLite it is."""
    if "POTSTILL_TEST_DISTRIBUTED" not in os.environ:
        yield None
        return
    with databases() as made:
        yield Filled(made)


@pytest.fixture(scope="module", autouse=True)
def _databases_of_a_module(filled: Filled | None) -> Iterator[None]:
    yield
    if filled is not None:
        filled.give_all_back()


@pytest.fixture(scope="module", autouse=True)
def unhurried() -> Iterator[None]:
    """Let nobody sweep by itself or be too fast, unless a test asks for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("service.app.SWEEP_SECONDS", 3600.0)
        patch.setattr("service.app.TRAFFIC_SECONDS", 3600.0)
        patch.setattr("service.app.POLL_SECONDS", 0.05)
        patch.setattr("service.api.problems._LINGER_SECONDS", 0.5)
        patch.setattr("service.infra.rates.RATE_BURST", 100_000)
        patch.setattr("service.infra.rates.AUTH_FAILURES_PER_MINUTE", 100_000)
        yield


@pytest.fixture(autouse=True)
def _settled_clock() -> None:
    """Forget steps of the machine's own clock: after one, nothing is late or old for a minute or a day."""
    clock.STEPS.__init__()  # type: ignore[misc]


SettingsMaker = Callable[..., Settings]
Move = Callable[[float], None]
"""Puts the clock ahead, by so many seconds."""


@dataclass
class Both:
    """Settings and an empty store, on one of the two databases."""

    settings: Settings
    database: Database
    store: Store
    blobs: Blobs


@pytest.fixture(scope="session")
def make_settings(template: Path, tmp_path_factory: pytest.TempPathFactory, filled: Filled | None) -> SettingsMaker:
    """Return a function that makes settings on a fresh folder with a migrated database."""

    def make(**changes: Any) -> Settings:
        home = tmp_path_factory.mktemp("home")
        shutil.copy(template / "potstill.db", home / "potstill.db")
        values = {
            "home": home,
            "database_url": None if filled is None or "database_url" in changes else filled.take(),
            "broker_url": None,
            "blob_dir": None,
            "secret": "a secret of the tests",
            "min_free_bytes": 0,
            "max_upload_bytes": 64 * 1024,
            "threads": 8,
        }
        return Settings(**{**values, **changes})

    return make


@pytest.fixture
def settings(make_settings: SettingsMaker, filled: Filled | None) -> Iterator[Settings]:
    made = make_settings()
    yield made
    if filled is not None:
        filled.give_back(made.database_url or "")


@pytest.fixture(scope="session")
def world_of() -> type[World]:
    """What makes a service of some settings; the caller closes it."""
    return World


@pytest.fixture
def world(settings: Settings) -> Iterator[World]:
    """A service of this test's own."""
    made = World(settings)
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared(make_settings: SettingsMaker) -> Iterator[World]:
    """A service that the tests of a module share, for requests that are refused."""
    made = World(make_settings())
    yield made
    made.close()


# ------------------------------------------------------------------------------------------------------ a bucket
@pytest.fixture(scope="session")
def bucket_server() -> Iterator[BucketServer]:
    """An S3 server of this run's own."""
    with serve() as running:
        yield running


# --------------------------------------------------------------------------------------------- both databases
@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A PostgreSQL database of this run's own, with tables."""
    with databases() as made:
        url = made.url(made.create())
        migrate.upgrade(Settings(database_url=url))
        yield url


@pytest.fixture
def postgres(postgres_url: str) -> str:
    """The PostgreSQL database, empty."""
    engine = create_engine(postgres_url)
    with engine.begin() as connection:
        connection.execute(text("TRUNCATE " + ", ".join(table.name for table in Base.metadata.sorted_tables)))
    engine.dispose()
    return postgres_url


@pytest.fixture(params=["sqlite", "postgresql"])
def both(
    request: pytest.FixtureRequest, make_settings: SettingsMaker, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Both]:
    """Settings and an empty store, once on each database; a job is tried three times."""
    monkeypatch.setattr("service.operations.progress.jobs.MAX_ATTEMPTS", 3)
    if request.param == "sqlite":
        settings = make_settings(database_url=None)
    else:
        settings = make_settings(database_url=request.getfixturevalue("postgres"))
    database = Database(settings)
    blobs = open_folder(settings.resolved_blob_dir)
    yield Both(settings=settings, database=database, store=Store(database, blobs.store), blobs=blobs)
    database.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def anywhere(request: pytest.FixtureRequest, make_settings: SettingsMaker, world_of: type[World]) -> Iterator[World]:
    """A service of this test's own, once on each database."""
    database_url = None if request.param == "sqlite" else request.getfixturevalue("postgres")
    made = world_of(make_settings(database_url=database_url))
    yield made
    made.close()
