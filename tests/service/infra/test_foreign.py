"""Variables of other programs do not decide where our programs connect, nor how many there are."""

import os
import subprocess
from pathlib import Path

import pytest

from contract.programs import environment, python
from service.config import Settings
from service.infra import bucket
from service.infra.celery_app import make_celery
from service.infra.foreign import foreign, forget

OTHERS = {
    "CELERY_BROKER_URL": "redis://127.0.0.1:6399/0",
    "CELERY_BROKER_READ_URL": "redis://127.0.0.1:6399/0",
    "CELERY_BROKER_WRITE_URL": "redis://127.0.0.1:6399/0",
    "CELERY_RESULT_BACKEND": "redis://127.0.0.1:6399/0",
    "CELERY_LOADER": "gone.loader",
    "CELERY_WORKER_QUEUES": "another",
    "BROKER_URL": "redis://127.0.0.1:6399/0",
    "DJANGO_SETTINGS_MODULE": "gone.settings",
    "UVICORN_WORKERS": "7",
    "WEB_CONCURRENCY": "7",
    "PROMETHEUS_MULTIPROC_DIR": "/nowhere",
    "PGHOSTADDR": "192.0.2.1",
}


def test_the_broker_is_the_one_of_our_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in OTHERS.items():
        monkeypatch.setenv(name, value)
    app = make_celery(Settings(home=tmp_path))
    assert app.conf.broker_read_url == app.conf.broker_write_url == "atomicfs://localhost"
    monkeypatch.setenv("CELERY_BROKER_URL", "redis://127.0.0.1:6399/0")  # Celery's own command line sets it so
    assert app.connection_for_read().transport_cls == "atomicfs"
    assert app.connection_for_write().transport_cls == "atomicfs"


def test_what_is_ours_or_the_system_s_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = ["POTSTILL_HOME", "UVICORN_ROOT_PATH", "PATH", "PGPASSFILE", "OMP_NUM_THREADS"]
    assert foreign([*OTHERS, *kept]) == sorted(OTHERS)
    for name, value in OTHERS.items():
        monkeypatch.setenv(name, value)
    forget()
    assert not set(OTHERS) & set(os.environ)


def test_the_worker_s_command_line_reads_none_of_them() -> None:
    told = environment() | OTHERS
    done = subprocess.run(
        python("-m", "worker", "--help"), env=told, capture_output=True, text=True, timeout=60, check=True
    )
    assert "worker" in done.stdout


@pytest.mark.parametrize(
    ("endpoint", "proxies"),
    [("http://127.0.0.1:9000", {}), ("http://localhost:9000", {}), ("https://s3.example", None)],
)
def test_a_store_on_this_machine_is_not_asked_by_a_proxy(
    endpoint: str, proxies: dict[str, str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://elsewhere.example")
    monkeypatch.setenv("AWS_PROFILE", "gone")
    bucket._session.cache_clear()
    keys = {"s3_access_key": "k", "s3_secret_key": "s"}
    settings = Settings.model_validate({"home": tmp_path, "blob_url": "s3://b", "s3_endpoint": endpoint, **keys})
    made = bucket._client(settings, endpoint)
    assert made.meta.endpoint_url == endpoint
    assert made.meta.config.proxies == proxies
    default = bucket._client(settings, None)
    assert "elsewhere" not in default.meta.endpoint_url
    bucket._session.cache_clear()
