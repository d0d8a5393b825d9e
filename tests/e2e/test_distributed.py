"""PostgreSQL and Redis: the commands and the environment of docker-compose.yml, run as processes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.infra.connections import MAX_CONNECTIONS
from tools.deployment import Deployment, add_server_data, federation_request, run_federation

from .composed import COMPOSE, REDIS, command_of, empty_redis


@pytest.fixture
def distributed(tmp_path: Path, database: str) -> Iterator[Deployment]:
    empty_redis()
    deployment = Deployment(
        tmp_path / "home",
        POTSTILL_DATABASE_URL=database,
        POTSTILL_BROKER_URL=REDIS,
        POTSTILL_SECRET="a secret of at least sixteen characters",
        POTSTILL_BLOB_DIR=str(tmp_path / "weights"),
    )
    try:
        yield deployment
    finally:
        deployment.close()


@pytest.mark.slow
def test_a_federation_on_postgresql_and_redis(distributed: Deployment, tmp_path: Path) -> None:
    distributed.start_api()
    distributed.start_worker()
    add_server_data(distributed)
    recipe = {"name": "feddf", "options": {"schedule": {"epochs": 1}}}
    federation, reports = run_federation(distributed, tmp_path / "devices", federation_request("far", recipe))
    assert federation.state == "finished"
    assert [index for index, _ in federation.accuracies] == [1, 2]
    assert all(report.rounds_trained == 2 for report in reports.values())
    assert not (tmp_path / "home" / "queue").exists(), "the embedded queue was used"


def test_compose_runs_what_the_tests_run(distributed: Deployment) -> None:
    """The variables of the compose file are settings, and its programs are those that the end-to-end tests start."""
    settings = {f"POTSTILL_{name.upper()}" for name in type(distributed.settings).model_fields}
    for service in ("api", "worker", "migrate"):
        named = {name.removesuffix("_FILE") for name in COMPOSE["services"][service]["environment"]}
        assert {name for name in named if not name.startswith("OTEL_")} <= settings
    api = command_of("api")
    assert api[:5] == ["python", "-m", "uvicorn", "service.app:create_app", "--factory"]
    assert set(api) >= {"service.infra.protocol:BoundedHttp", "--no-server-header", "--no-proxy-headers"}
    assert int(api[api.index("--limit-concurrency") + 1]) == MAX_CONNECTIONS
    assert command_of("worker")[:6] == ["python", "-m", "celery", "-A", "worker.app", "worker"]
    assert COMPOSE["services"]["migrate"]["command"] == ["potstill", "migrate"]


def _conditions(service: dict[str, Any]) -> dict[str, str]:
    return {name: each["condition"] for name, each in service.get("depends_on", {}).items()}


def test_compose_starts_in_order() -> None:
    """Every service that is waited for has a health check, or is waited for to its end."""
    services = COMPOSE["services"]
    for service in services.values():
        for name, condition in _conditions(service).items():
            assert condition == "service_completed_successfully" or "healthcheck" in services[name]
    assert _conditions(services["api"])["migrate"] == "service_completed_successfully"
