"""What a linter cannot see: which modules a process really loads."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = "import sys, json, {module}; print(json.dumps(list(sys.modules)))"


def loaded_by(module: str) -> set[str]:
    """Return the modules, and the packages at the top, in a fresh process after importing `module`."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(module=module)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    return {*found, *(name.split(".")[0] for name in found)}


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("service.app", {"torch", "worker", "client_sdk", "potstill", "alembic", "mako", "pygments"}),
        ("service.app", {"celery", "kombu", "amqp", "redis", "boto3", "sqlalchemy.dialects.postgresql.base"}),
        ("service.app", {"opentelemetry.sdk", "opentelemetry.exporter", "opentelemetry.proto", "google", "requests"}),
        ("worker.alone", {"torch", "fastapi", "client_sdk", "potstill", "alembic", "mako", "pygments"}),
        ("worker.alone", {"opentelemetry", "google", "requests"}),
        ("worker.alone", {"celery", "kombu", "amqp", "redis", "boto3", "uvicorn", "httpx"}),
        ("worker.alone", {"sqlalchemy.dialects.postgresql.base", "prometheus_client", "limits"}),
        ("worker.app", {"torch", "fastapi", "client_sdk", "potstill", "alembic", "mako", "pygments"}),
        ("worker.parts.fuse", {"torch", "sqlalchemy", "celery"}),
        ("worker.pipeline", {"torch", "sqlalchemy", "celery"}),
        ("client_sdk", {"torch", "service", "worker", "fastapi", "sqlalchemy"}),
        ("client_sdk.runner", {"opentelemetry", "google", "requests"}),
        ("potstill.cli", {"torch", "worker"}),
        ("contract.recipes.presets", {"torch", "httpx", "sqlalchemy"}),
        ("contract.tensors", {"torch", "safetensors"}),
    ],
)
def test_process_stays_light(module: str, forbidden: set[str]) -> None:
    assert not loaded_by(module) & forbidden


def test_the_check_can_fail() -> None:
    assert "torch" in loaded_by("contract.nn.registry")
