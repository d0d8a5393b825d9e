"""The Celery application that both ends of a broker configure alike.

The embedded installation goes without: this module, and Celery with it, is loaded where a broker is named.
"""

from typing import Any

from celery import Celery
from kombu.entity import Queue

from contract.queue import celery_queue
from service.config import Settings
from service.infra import atomicfs, changes, foreign

# A Redis that is suspended, or gone without a word, keeps its connections open: whoever waits for it waits for ever.
_REDIS = {"socket_timeout": 10, "socket_connect_timeout": 5, "socket_keepalive": True, "health_check_interval": 10}


class _Celery(Celery):  # type: ignore[misc]
    """Celery that connects to the broker of our settings, whatever its variables of the environment say."""

    def connection_for_read(self, url: str | None = None, **options: Any) -> Any:
        """Return a connection for consuming."""
        return super().connection_for_read(url or self.conf.get("broker_url"), **options)

    def connection_for_write(self, url: str | None = None, **options: Any) -> Any:
        """Return a connection for producing."""
        return super().connection_for_write(url or self.conf.get("broker_url"), **options)


def make_celery(settings: Settings) -> Celery:
    """Return a Celery app: no result backend, JSON only, early acknowledgement (the row is what survives)."""
    foreign.forget()
    app = _Celery("potstill", set_as_current=False, loader="celery.loaders.app:AppLoader", fixups=[])
    broker, transport = settings.broker_url, {}
    if broker is None:
        atomicfs.register()
        broker = f"{atomicfs.NAME}://localhost"
        transport = atomicfs.options(settings.queue_dir, changes.POLL_SECONDS)
    elif broker.startswith("redis"):
        transport = dict(_REDIS)
    app.conf.update(
        broker_url=broker,
        broker_transport_options=transport,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,  # for ever: jobs are done without a broker, too, only later
        task_default_queue=celery_queue(settings.queue_list[0]),
        task_queues=[Queue(celery_queue(queue)) for queue in settings.queue_list],  # type: ignore[no-untyped-call]
        task_create_missing_queues=True,
        task_ignore_result=True,
        task_serializer="json",
        accept_content=["json"],
        task_acks_late=False,
        worker_prefetch_multiplier=1,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
    )
    return app
