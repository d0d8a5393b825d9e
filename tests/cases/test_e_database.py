"""E: the database under many writers."""

import threading

import httpx
import pytest

from tests.cases.conftest import NETWORK, Invite
from tests.cases.wire import put
from tools.deployment import Deployment


@pytest.mark.slow
def test_e01_fifty_clients_at_the_same_moment(live: Deployment, party: Invite) -> None:
    """Fifty uploads meet at one barrier, while the worker and the sweeper write too: all are counted, none twice."""
    names = [f"d{number:02}" for number in range(50)]
    fed, other = party(*names, total=1), party("z", total=1)
    url, body = fed.url(), fed.body(NETWORK | {"fc.bias": NETWORK["fc.bias"] + 1})
    barrier, answers = threading.Barrier(len(names) + 1), []

    def deliver(name: str) -> None:
        barrier.wait()
        answers.append(put(url, fed.tokens[name], body))

    threads = [threading.Thread(target=deliver, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    barrier.wait()
    assert other.push("z").status == 201
    for thread in threads:
        thread.join()
    assert [answer.status for answer in answers] == [201] * len(names), [a.body for a in answers if a.status != 201]
    for each in (fed, other):
        each.finish()
    assert (fed.round().asked, fed.round().answered) == (50, 50)
    assert (fed.model()["fc.bias"] == 1).all()
    assert httpx.get(f"{live.url}/healthz").status_code == 200
    assert "database is locked" not in live.log("api") + live.log("worker")
