"""Every error is a problem; every answer has an id."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError, OperationalError

from contract.wire.problems import KINDS, MEDIA_TYPE, TYPE_PREFIX, Problem
from service.api.middleware import MAX_JSON_BYTES
from service.api.problems import documented, problem
from service.domain.errors import DomainError
from tests.service.world import World

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_status_a_title_and_a_place_in_the_documents(kind: str) -> None:
    status, title = KINDS[kind]
    assert 400 <= status < 600
    assert title[0].isupper()
    assert not title.endswith(".")
    assert re.search(rf"^\| `{kind}` \| {status} \|", (ROOT / "docs" / "problems.md").read_text(), re.M)
    response = problem({"type": "http", "potstill.request_id": "r1"}, kind, "because", tensor="w")
    body = Problem.model_validate_json(bytes(response.body))
    assert (response.status_code, body.status, body.kind, body.title) == (status, status, kind, title)
    assert (body.instance, body.member("tensor")) == ("r1", "w")
    assert response.media_type == MEDIA_TYPE
    assert str(status) in {str(code) for code in documented(kind)}


def test_an_unknown_kind_cannot_be_raised() -> None:
    with pytest.raises(KeyError):
        DomainError("no-such-kind", "x")


def test_a_member_cannot_hide_a_standard_one() -> None:
    body = json.loads(bytes(problem({}, "not-found", "because", status=200, title="fine").body))
    assert (body["status"], body["title"]) == (404, KINDS["not-found"].title)


def check(response: Any, kind: str) -> Any:
    assert response.status_code == KINDS[kind].status, response.text
    assert response.headers["content-type"] == MEDIA_TYPE
    body = response.json()
    assert body["type"] == TYPE_PREFIX + kind
    assert body["instance"] == response.headers["x-request-id"]
    return body


@pytest.mark.parametrize(
    "path", ["/nothing", "/v1/nothing", "/v1/federations/fed_x/nothing", "/static/../service/app.py"]
)
def test_an_unknown_path_is_a_problem(shared: World, path: str) -> None:
    assert "no such path" in check(shared.op("GET", path), "not-found")["detail"]


@pytest.mark.parametrize("path", ["federations", "models", "rounds", "jobs", "datasets"])
@pytest.mark.parametrize("name", ["x", "fed_0", "a%00b", "%ff", "..%2fx", "é"])
def test_an_unknown_id_is_a_problem(shared: World, path: str, name: str) -> None:
    check(shared.op("GET", f"/v1/{path}/{name}"), "not-found")


def test_an_id_that_is_too_long_is_a_problem(shared: World) -> None:
    assert check(shared.op("GET", "/v1/rounds/" + "x" * 65), "invalid-field")["field"] == "path.round_id"


@pytest.mark.parametrize("call", [("PATCH", "/v1/federations"), ("DELETE", "/v1/recipes"), ("POST", "/v1/assignment")])
def test_another_method_is_a_problem_with_allow(shared: World, call: tuple[str, str]) -> None:
    response = shared.op(*call)
    check(response, "method-not-allowed")
    assert response.headers["allow"]


def test_a_body_that_is_no_json(shared: World) -> None:
    headers = {"Content-Type": "application/json"}
    check(shared.op("POST", "/v1/tokens", body=b"{", headers=headers), "invalid-request")


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"null", b'"x"', b"{}", b'{"name": 3}', b'{"name": "x", "rolle": "viewer"}']
)
def test_a_body_that_is_not_what_is_asked_for(shared: World, body: bytes) -> None:
    problem = check(
        shared.op("POST", "/v1/tokens", body=body, headers={"Content-Type": "application/json"}), "invalid-field"
    )
    assert problem["errors"][0]["field"] == problem["field"]


def test_what_was_sent_is_not_echoed(shared: World) -> None:
    secret = "correct horse battery staple"
    response = shared.op("POST", "/v1/tokens", json={"name": ["x", secret], "role": secret, secret[:3]: 1})
    assert secret not in response.text


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("clients", '{"name": "x", "num_samples": 1, "capabilities": {"gpu": %s}}'),
        ("clients", '{"name": "x", "num_samples": %s}'),
        ("", '{"local": {"clip_norm": %s}}'),
        ("", '{"rounds": {"target_accuracy": %s}}'),
        ("", '{"rounds": {"clients_per_round": %s}}'),
        ("", '{"recipe": {"name": "fedgo-small", "options": {"penalty": %s}}, "datasets": {"unlabeled": "DATA"}}'),
        ("", '{"recipe": {"name": "feddf", "options": {"clip_norm": %s}}, "datasets": {"unlabeled": "DATA"}}'),
    ],
)
def test_numbers_that_are_not_finite_are_refused(shared: World, path: str, body: str, number: str) -> None:
    fed = shared.create()
    if path:
        url, token, text = f"/v1/federations/{fed.id}/clients", fed.join_token, body % number
    else:
        url, token = "/v1/federations", shared.operator
        data = shared.dataset()["id"] if "DATA" in body else ""
        text = json.dumps(shared.body())[:-1] + ", " + (body % number).replace("DATA", data)[1:]
    headers = {"Content-Type": "application/json"}
    response = shared.site.request("POST", url, token=token, body=text.encode(), headers=headers)
    assert response.status_code == 422, response.text
    assert check(response, "invalid-field")["field"]


@pytest.mark.parametrize("announced", [True, False])
def test_a_json_body_has_a_limit(shared: World, announced: bool) -> None:
    size = MAX_JSON_BYTES + 1
    body = b" " * size if announced else [b" " * (size // 2)] * 3
    response = shared.op("POST", "/v1/federations", body=body, headers={"Content-Type": "application/json"})
    assert check(response, "too-large")["expected"] == MAX_JSON_BYTES
    assert response.extensions["waits"] == 0


def test_a_chunk_over_the_limit_at_the_very_end_is_answered_at_once(shared: World) -> None:
    body = [b" " * (MAX_JSON_BYTES + 1)]
    response = shared.op("POST", "/v1/federations", body=body)
    check(response, "too-large")
    assert response.extensions["waits"] == 0


def test_a_compressed_json_body_is_refused(shared: World) -> None:
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    check(shared.op("POST", "/v1/tokens", body=b"\x1f\x8b", headers=headers), "unsupported-media-type")


def test_a_fault_of_ours_is_a_problem_with_an_id_that_the_log_has(
    shared: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: Any) -> None:
        raise RuntimeError("secret details")

    monkeypatch.setattr("service.operations.store.workers.listing", broken)
    response = shared.op("GET", "/v1/workers", fail=True)
    check(response, "internal")
    assert "secret details" not in response.text
    assert [
        record for record in caplog.records if record.exc_info and response.headers["x-request-id"] in record.message
    ]


def test_a_database_that_is_away_is_unavailable(shared: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (OperationalError, IntegrityError):

        def broken(*args: Any, error: Any = error) -> None:
            raise error("SELECT secret", {}, Exception("locked"))

        monkeypatch.setattr("service.operations.store.workers.listing", broken)
        response = shared.op("GET", "/v1/workers")
        check(response, "unavailable")
        assert response.headers["retry-after"].isdecimal()
        assert "secret" not in response.text


@pytest.mark.parametrize(
    "path", ["/healthz", "/v1/recipes", "/nothing", "/docs", "/static/reference/main.js", "/v1/federations"]
)
def test_every_answer_has_an_id_and_the_security_headers(shared: World, path: str) -> None:
    first, second = (shared.site.request("GET", path) for _ in "12")
    assert first.headers["x-request-id"] != second.headers["x-request-id"]
    for name in ("content-security-policy", "x-content-type-options", "x-frame-options", "referrer-policy"):
        assert first.headers[name]


def test_the_callers_request_id_is_used_if_it_is_plain(shared: World) -> None:
    assert shared.site.request("GET", "/healthz", headers={"X-Request-Id": "abc-1"}).headers["x-request-id"] == "abc-1"
    for bad in ("a b", "x" * 65, "<b>", ""):
        answer = shared.site.request("GET", "/healthz", headers={"X-Request-Id": bad})
        assert re.fullmatch(r"[0-9a-f]{32}", answer.headers["x-request-id"])


@pytest.mark.parametrize(("kind", "seconds"), [("unavailable", "5"), ("storage-full", "5"), ("too-many-requests", "5")])
def test_refusals_that_may_pass_say_when_to_try_again(
    shared: World, monkeypatch: pytest.MonkeyPatch, kind: str, seconds: str
) -> None:
    def refuse(*args: Any) -> None:
        raise DomainError(kind, "not now, please")

    monkeypatch.setattr("service.operations.store.workers.listing", refuse)
    response = shared.op("GET", "/v1/workers")
    check(response, kind)
    assert response.headers["retry-after"] == seconds
