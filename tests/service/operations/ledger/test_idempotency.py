"""One key, one answer, whoever asks at once."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from service.operations.ledger.idempotency import once
from tests.service.conftest import Both


def test_one_key_at_once_gets_one_answer_from_every_replica(both: Both) -> None:
    """Two requests with one key, each in a transaction of its own: the second one waits, and is answered."""
    inside, made = threading.Event(), []

    def request(first: bool) -> dict[str, Any]:
        def make() -> dict[str, Any]:
            made.append(first)
            inside.set()
            time.sleep(0.3)  # the other one comes meanwhile
            return {"by": first}

        if not first:
            assert inside.wait(10)
        with both.store.write() as session:
            return once(session, "tok_1", "key", "request", make)

    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(request, [True, False]))
    assert answers == [{"by": True}] * 2
    assert made == [True]
