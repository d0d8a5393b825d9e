"""An installation's processes, and the servers that it needs, for a test."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bucket_server import BucketServer, serve
from tests.databases import databases
from tests.e2e.composed import Composed, empty_redis
from tools.deployment import ROOT, Deployment, running


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    made = Deployment(tmp_path / "home")
    with running(made):
        yield made


@pytest.fixture
def database() -> Iterator[str]:
    """The address of a PostgreSQL database of this test's own, empty."""
    with databases() as made:
        yield made.url(made.create())


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """What deploy/secrets.sh makes."""
    if shutil.which("openssl") is None:
        pytest.skip("NO OPENSSL, the distributed mode is not tested")
    shutil.copy(ROOT / "deploy/secrets.sh", tmp_path)
    for _ in range(2):
        subprocess.run(["sh", tmp_path / "secrets.sh"], check=True)
    return tmp_path / "secrets"


@pytest.fixture
def bucket_server() -> Iterator[BucketServer]:
    """An S3 store."""
    with serve() as running:
        yield running


@pytest.fixture
def composed(
    tmp_path: Path, secrets: Path, bucket_server: BucketServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Composed]:
    """The compose file's installation with its database migrated and its replicas up; presigned addresses are on."""
    empty_redis()
    more = {"POTSTILL_PRESIGN": "true"}
    made = Composed(tmp_path / "home", secrets, bucket_server.url, database, **more)
    monkeypatch.setenv("POTSTILL_CA_FILE", str(secrets / "tls_certificate"))  # devices trust it
    try:
        made.migrate()
        made.start_replicas()
        yield made
    finally:
        made.close()
