"""A worker that acknowledges a wake-up late, and only after a while: its broker delivers it again in the meantime.

Ours acknowledges at once. This one behaves like those that were met in the field: `celery -A tools.chaos.late worker`.
"""

import time
from typing import Any

from celery import signals

from worker.app import app

VISIBILITY_SECONDS = 10
app.conf.task_acks_late = True
app.conf.broker_transport_options = app.conf.broker_transport_options | {
    "visibility_timeout": VISIBILITY_SECONDS,
    "unacked_restore_throttle": 1,  # look every ten seconds for what came due, not every hundred
}


@signals.task_postrun.connect  # type: ignore[untyped-decorator]
def _hold(**kwargs: Any) -> None:
    """Keep the message for longer than the broker waits; the work itself has begun."""
    time.sleep(2.5 * VISIBILITY_SECONDS)
