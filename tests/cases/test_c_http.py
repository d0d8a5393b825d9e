"""C: HTTP. Clients that vanish, bodies without end, bursts, answers that get lost, names that are paths."""

import contextlib
import gzip
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import httpx
import psutil
import pytest

from tests.cases.conftest import LIMIT, NETWORK, Invite
from tests.cases.wire import Line, put
from tools.deployment import Deployment, wait_for

MIB = 1024 * 1024


def _temporary(live: Deployment) -> list[str]:
    return [path.name for path in (live.home / "blobs" / "tmp").iterdir()]


def _memory(live: Deployment) -> int:
    return int(psutil.Process(live.pid("api")).memory_info().rss)


def test_c01_client_gone_during_upload(live: Deployment, party: Invite) -> None:
    """Fifty uploads that break off half-way: no traceback, no file, nothing counts, and a retry works."""
    fed = party("a", "b")
    url, body = fed.url(), fed.body()
    for _ in range(50):
        line = Line(url)
        line.head("PUT", fed.tokens["a"], Content_Length=len(body))
        line.send(body[: len(body) // 2])
        line.reset()
    wait_for(lambda: not _temporary(live), 10, "temporary files stay")
    assert "Traceback" not in live.log("api")
    assert fed.round().answered == 0
    assert put(url, fed.tokens["a"], body).status == 201


def test_c02_no_way_round_the_size_limit(live: Deployment, party: Invite) -> None:
    """Without Content-Length the limit holds while the body streams; 100 GB are refused before the first byte."""
    fed = party("a", "b")
    before, sent = _memory(live), 0
    with Line(fed.url()) as line:
        line.head("PUT", fed.tokens["a"], Transfer_Encoding="chunked")
        try:
            while sent < 32 * LIMIT:
                line.chunk(bytes(MIB))
                sent += MIB
        except OSError:
            pass  # the service hung up
        answer = line.answer()
    assert answer.status in (413, 422, None)  # None: it hung up and the answer was lost with the connection
    assert sent < LIMIT + 80 * MIB, "after the refusal the service lingers for 64 MiB, no more"
    assert _memory(live) - before < 20 * MIB
    with Line(fed.url()) as line:
        line.head("PUT", fed.tokens["a"], Content_Length=100 * 1024**3, Expect="100-continue")
        answer = line.answer()
    assert answer.status == 413, answer
    assert not _temporary(live)


def test_c02_a_sound_body_above_the_limit(live: Deployment, party: Invite) -> None:
    """What starts like a file that would fit in every other way ends at the limit, too."""
    fed = party("a", "b")
    header = json.dumps({"__metadata__": {"a": "b" * 100}}).encode().ljust(512)
    with Line(fed.url()) as line:
        line.head("PUT", fed.tokens["a"], Content_Length=LIMIT + 1)
        with contextlib.suppress(OSError):
            line.send(len(header).to_bytes(8, "little") + header)
        assert line.answer().status == 413


def test_c04_compressed_body(live: Deployment, party: Invite) -> None:
    """A Content-Encoding is refused by name, whatever would unfold from it; unannounced gzip is no safetensors."""
    fed = party("a", "b")
    bomb, before = gzip.compress(bytes(64 * MIB)), _memory(live)
    for encoding in ("gzip", "deflate", "br", "zstd", "gzip, identity"):
        answer = put(fed.url(), fed.tokens["a"], bomb, Content_Encoding=encoding)
        assert answer.status == 415, answer
        assert "identity" in answer.problem["detail"] or "Content-Encoding" in answer.problem["detail"]
    assert put(fed.url(), fed.tokens["a"], gzip.compress(fed.body())).status == 422
    assert _memory(live) - before < 50 * MIB
    assert put(fed.url(), fed.tokens["a"], fed.body(), Content_Encoding="identity").status == 201


def test_c07_a_burst_of_uploads(live: Deployment, party: Invite) -> None:
    """As many uploads at once as there are devices: each counts once or is told when to come back; health answers."""
    names = [f"d{number:02}" for number in range(48)]
    fed = party(*names)
    url, body, health = fed.url(), fed.body(NETWORK | {"fc.bias": NETWORK["fc.bias"] + 1}), []
    ending = threading.Event()

    def watch() -> None:
        while not ending.is_set():
            health.append(httpx.get(f"{live.url}/healthz", timeout=10).status_code)
            time.sleep(0.05)

    def deliver(name: str) -> int:
        while True:
            answer = put(url, fed.tokens[name], body)
            if answer.status not in (429, 503):
                return answer.status or 0
            time.sleep(float(answer.headers["retry-after"]))

    watcher = threading.Thread(target=watch)
    watcher.start()
    with ThreadPoolExecutor(len(names)) as pool:
        statuses = list(pool.map(deliver, names))
    ending.set()
    watcher.join()
    assert set(statuses) == {201}
    assert set(health) == {200}
    wait_for(lambda: fed.round(1).state == "published", why="the round is not published")
    assert fed.round(1).answered == len(names)


@pytest.mark.parametrize("spelling", ["NaN", '"nan"', "Infinity", '"inf"', "1e999"])
def test_c10_nan_in_a_metric(party: Invite, live: Deployment, spelling: str) -> None:
    """A metric that is no number is refused by name; what can be read stays readable."""
    fed = party("a", "b")
    answer = fed.push("a", metrics=f'{{"loss": {spelling}}}')
    assert answer.status == 422
    assert answer.problem["field"] == "metrics.loss"
    for path in (f"/v1/federations/{fed.id}", f"/v1/federations/{fed.id}/rounds", f"/v1/rounds/{fed.round().id}"):
        response = httpx.get(live.url + path, headers={"Authorization": f"Bearer {live.token}"})
        assert response.status_code == 200
        response.json()
    assert fed.push("a", metrics='{"loss": 0.5}').status == 201


def test_c14_the_answer_got_lost(party: Invite) -> None:
    """The same bytes again get the first answer; other bytes are refused; one contribution."""
    fed = party("a", "b")
    url, body, key = fed.url(), fed.body(), "0e8ed1c1"
    with Line(url) as line:
        line.head("PUT", fed.tokens["a"], Content_Length=len(body), Idempotency_Key=key)
        line.send(body)
        wait_for(lambda: fed.round().answered == 1, 20, "the update does not count")
    first = put(url, fed.tokens["a"], body, Idempotency_Key=key)
    again = put(url, fed.tokens["a"], body, Idempotency_Key=key)
    assert (first.status, again.status) == (200, 200)
    assert json.loads(first.body)["id"] == json.loads(again.body)["id"]
    changed = fed.body(NETWORK | {"fc.bias": NETWORK["fc.bias"] + 1})
    assert put(url, fed.tokens["a"], changed, Idempotency_Key=key).status == 409
    assert fed.round().answered == 1


PATHS = [
    "../../x",
    "/etc/x",
    "a/../../b",
    "..%2f..%2fx",
    "..%5C..%5cx",
    "C:\\x",
    "",
    "a\0b",
    "..",
    ".",
    "a/b",
    "x" * 500,
]


def test_c19_names_are_no_paths(live: Deployment, party: Invite) -> None:
    """A name that is a path is refused by its field; an id that is one names nothing; no file appears elsewhere."""
    fed = party("a", "b")

    def outside() -> set[Any]:
        return {path for path in live.home.parent.rglob("*") if not path.is_relative_to(live.home)}

    before, body = outside(), fed.body()
    with httpx.Client(base_url=live.url, headers={"Authorization": f"Bearer {live.token}"}) as operator:
        for name in PATHS:
            join = {"Authorization": f"Bearer {fed.join_token}"}
            enrolment = {"name": name, "num_samples": 5}
            refused = operator.post(f"/v1/federations/{fed.id}/clients", json=enrolment, headers=join)
            assert (refused.status_code, refused.json().get("field")) == (422, "name"), (name, refused.text)
            federation = operator.post("/v1/federations", json=_federation(name))
            assert (federation.status_code, federation.json().get("field")) == (422, "name"), (name, federation.text)
            in_path, in_query = quote(name, safe="").replace(".", "%2e") or "%20", quote(name, safe="")
            assert operator.post(f"/v1/datasets?name={in_query}", content=body).status_code == 422, name
            for kind in ("federations", "models", "rounds", "jobs", "datasets"):
                answer = operator.get(f"/v1/{kind}/{in_path}")
                assert answer.status_code in (404, 405, 422), (name, kind, answer.text)
            assert operator.get(f"/v1/models/{in_path}/weights").status_code in (404, 422), name
            device = {"Authorization": f"Bearer {fed.tokens['a']}"}
            answer = operator.put(f"/v1/rounds/{in_path}/update", content=body, headers=device)
            assert answer.status_code in (404, 422), (name, answer.text)
    assert outside() == before


def _federation(name: str) -> dict[str, Any]:
    task = {"num_classes": 2, "input": {"shape": [2]}}
    return {"name": name, "task": task, "prototypes": [{"architecture": "mlp"}], "recipe": {"name": "fedavg"}}
