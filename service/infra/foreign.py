"""Variables of other programs that libraries of ours would read before our settings: our programs go without them."""

import os
from collections.abc import Iterable

_PREFIXES = (
    "CELERY_",  # broker, loader, and every option of its worker (CELERY_WORKER_QUEUES, …)
    "KOMBU_",
    "UVICORN_",  # every option of its command line
)
_NAMES = frozenset(
    {
        *("APP", "BROKER_URL", "CONFIG_MODULE", "LOADER", "RESULT_BACKEND", "SKIP_CHECKS"),  # Celery's command line
        "DJANGO_SETTINGS_MODULE",  # Celery would set up that project
        *("WEB_CONCURRENCY", "FORWARDED_ALLOW_IPS"),  # uvicorn's
        *("PROMETHEUS_MULTIPROC_DIR", "prometheus_multiproc_dir"),  # metrics would go into files of another program
        "PGHOSTADDR",  # libpq would go there, whatever host the database URL names
    }
)
_OURS = frozenset({"UVICORN_ROOT_PATH"})  # the path that a proxy serves us under: docs/deploy.md


def foreign(environment: Iterable[str]) -> list[str]:
    """Return the variables that our programs are started without."""
    return sorted(name for name in environment if name not in _OURS and (name in _NAMES or name.startswith(_PREFIXES)))


def forget() -> None:
    """Take them out of this process's environment, and so out of its children's."""
    for name in foreign(os.environ):
        del os.environ[name]
