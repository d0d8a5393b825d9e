"""The one message there is, 'look at the jobs table', through a broker or an embedded installation's folder."""

import logging
import uuid
from base64 import b64encode
from typing import Any

from contract.private import private_folder
from contract.queue import TASK_WORK, celery_queue
from service.config import Settings
from service.infra.folder_queue import FolderQueue

# No arguments, and nothing to be done afterwards.
_BODY = b64encode(b'[[], {}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]').decode()
log = logging.getLogger(__name__)


def message(queue: str) -> dict[str, Any]:
    """Return the message as Celery's own producer writes it: a worker of Celery's may wait in the folder, too."""
    number = str(uuid.uuid4())
    headers = dict.fromkeys(("shadow", "eta", "expires", "group", "group_index", "parent_id", "ignore_result"))
    return {
        "body": _BODY,
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": headers
        | {
            "lang": "py",
            "task": TASK_WORK,
            "id": number,
            "root_id": number,
            "retries": 0,
            "timelimit": [None, None],
            "stamps": {},
        },
        "properties": {
            "correlation_id": number,
            "delivery_mode": 2,
            "delivery_info": {"exchange": "", "routing_key": queue},
            "priority": 0,
            "body_encoding": "base64",
            "delivery_tag": str(uuid.uuid4()),
        },
    }


class Sender:
    """Sends the one message that there is. A lost one is sent again by the sweep."""

    def __init__(self, settings: Settings):
        self._app: Any = None
        if settings.broker_url is None:
            private_folder(settings.queue_dir)
            self._folder = FolderQueue(settings.queue_dir / "messages")
        else:
            from service.infra.celery_app import make_celery  # with its kombu, 15 MB

            self._app = make_celery(settings)

    def send(self, queue: str) -> bool:
        """Wake the workers of a queue; False when the broker cannot be reached, which delays a job but loses none."""
        name = celery_queue(queue)
        try:
            if self._app is None:
                self._folder.put(name, message(name))
            else:
                self._app.send_task(TASK_WORK, queue=name, retry=False, expires=3600)
        except Exception as error:  # noqa: BLE001 - any broker, any error: the sweep tries again
            log.warning("no wake-up sent: %s: %s", type(error).__name__, error)
            return False
        return True

    def close(self) -> None:
        """Drop the connections."""
        if self._app is not None:
            self._app.close()
