"""One typed method per endpoint: what each sends and what it makes of the answer."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from client_sdk import Client, OperatorClient, errors
from contract.local import Adam, LocalPlan
from contract.wire.changes import PlanChange
from contract.wire.common import Page
from contract.wire.devices import Enrolment
from contract.wire.federations import FederationCreate, FederationDraft
from contract.wire.retention import Retention

NOW = "2026-01-01T00:00:00.000Z"
DIGEST = "sha256-" + "0" * 64
RECIPE = {"name": "fedavg"}
SUMMARY = {
    "id": "fed_1",
    "name": "digits",
    "state": "running",
    "recipe": "fedavg",
    "round": 1,
    "rounds_total": 3,
    "clients": 2,
    "created_at": NOW,
}
COSTS: dict[str, Any] = {"networks": [], "before": {}, "rounds": [], "total": {}}
TASK = {"kind": "classification", "num_classes": 10, "input": {"shape": [1, 8, 8], "dtype": "float32"}}
PROTOTYPES = [{"name": "main", "architecture": "cnn-digits"}]
FEDERATION = SUMMARY | {
    "task": TASK,
    "prototypes": PROTOTYPES,
    "composition": RECIPE,
    "local": {},
    "rounds": {},
    "datasets": {},
    "seed": 0,
}
ROUND = {
    "id": "rnd_1",
    "federation_id": "fed_1",
    "index": 1,
    "state": "collecting",
    "asked": 2,
    "answered": 1,
    "needed": 2,
    "min_updates": 1,
    "opened_at": NOW,
    "deadline_at": NOW,
}
MODEL = {
    "id": "mdl_1",
    "federation_id": None,
    "round_id": None,
    "round": None,
    "prototype": None,
    "role": "imported",
    "digest": DIGEST,
    "size": 1,
    "architecture": "mlp",
    "created_at": NOW,
    "url": "/v1/models/mdl_1/weights",
}
NETWORK = {
    "id": "net_1",
    "name": "ward-net",
    "architecture": f"net:{DIGEST}",
    "digest": DIGEST,
    "size": 1,
    "facts": {
        "role": "classifier",
        "input": {"shape": [4]},
        "output": [2],
        "parameters": 8,
        "batch_norm": False,
        "normalises": False,
        "features": False,
        "shares_head": False,
    },
    "created_at": NOW,
    "url": "/v1/networks/net_1/document",
}
DATASET = {
    "id": "dst_1",
    "name": "server",
    "digest": DIGEST,
    "size": 1,
    "num_samples": 3,
    "shape": [1, 8, 8],
    "dtype": "F32",
    "labeled": False,
    "created_at": NOW,
}
JOB = {
    "id": "job_1",
    "kind": "round",
    "state": "running",
    "federation_id": "fed_1",
    "round_id": "rnd_1",
    "attempt": 1,
    "max_attempts": 3,
    "created_at": NOW,
    "progress": {"phase": "distil", "step": 1, "of": 2},
}
TOKEN = {"id": "tok_1", "name": "ops", "role": "viewer", "created_at": NOW}
AUDIT = {
    "seq": 1,
    "at": NOW,
    "actor_id": "tok_1",
    "actor_name": "ops",
    "role": "operator",
    "address": "10.0.0.1",
    "action": "token.create",
    "target": "tok_2",
    "request_id": "r",
    "outcome": "done",
    "detail": {"name": "x"},
    "previous_hash": "0" * 64,
    "hash": "1" * 64,
}
CLIENT = {"id": "cli_1", "name": "ward-7", "prototype": "main", "num_samples": 5, "enrolled_at": NOW}
WORKER = {"id": "wrk_1", "host": "h", "pid": 1, "device": "cpu", "alive": True, "last_seen_at": NOW}
STATUS = {"version": "1", "role": "viewer", "ready": True, "checks": {"disk": {"ok": True}}, "free_bytes": 5}
ARCHITECTURE = {"name": "mlp", "role": "classifier", "summary": "s", "server_side": True, "options": {}}
RECIPE_INFO = {"name": "fedavg", "summary": "s", "source": "p", "choices": [], "composition": RECIPE, "local": {}}
READY = {"ready": True, "checks": {"database": {"ok": True}}}
CREATE = FederationCreate.model_validate(
    {"name": "digits", "task": TASK, "prototypes": PROTOTYPES, "recipe": RECIPE, "rounds": {"total": 3}}
)


def page(*items: Any) -> dict[str, Any]:
    return {"items": list(items), "next": None}


Call = Callable[[OperatorClient], Any]
EXPLANATION = {"round_id": "rnd_1", "round": 1, "federation_id": "fed_1", "clients": []}
ENSEMBLE = {
    "id": "ens_1",
    "federation_id": "fed_1",
    "round_id": "rnd_1",
    "round": 1,
    "document": {"task": TASK, "weigh": {"kind": "uniform"}, "combine": {"kind": "logits"}, "members": []},
    "size": 1,
    "removed": [],
    "predicts": True,
    "created_at": NOW,
    "url": "/v1/rounds/rnd_1/ensemble/bundle",
}
PREDICTION = {
    "id": "prd_1",
    "federation_id": "fed_1",
    "job_id": "job_1",
    "state": "queued",
    "dataset": "wards",
    "dataset_digest": DIGEST,
    "num_samples": 3,
    "ensemble": False,
    "created_at": NOW,
    "url": "/v1/predictions/prd_1/file",
}
PROVENANCE = {
    "id": "prv_1",
    "digest": "sha256-" + "0" * 64,
    "document": {"version": 1},
    "removed": [],
    "replayable": True,
    "created_at": "2026-11-28T12:00:00Z",
}
FORGOTTEN = {
    "client_id": "cli_1",
    "deleted": {"updates": 1, "generators": 0, "discriminators": 1, "bytes": 100},
    "models": ["mdl_1"],
    "descendants": [],
}

NOTE = {"path": "recipe.drop_worst", "note": "left out", "why": "there is no set"}

DRAFT = {name: FEDERATION[name] for name in FederationDraft.model_fields if name in FEDERATION}
CALLS: dict[str, tuple[Call, str, str, Any]] = {
    "health": (lambda c: c.health(), "GET", "/healthz", {"status": "ok", "version": "1"}),
    "readiness": (lambda c: c.readiness(), "GET", "/readyz", READY),
    "create_federation": (
        lambda c: c.create_federation(CREATE),
        "POST",
        "/v1/federations",
        FEDERATION | {"join_token": "j"},
    ),
    "federations": (lambda c: c.federations(), "GET", "/v1/federations", page(SUMMARY)),
    "draft_federation": (lambda c: c.draft_federation(CREATE), "POST", "/v1/federations/draft", DRAFT),
    "federation": (lambda c: c.federation("fed_1"), "GET", "/v1/federations/fed_1", FEDERATION),
    "start_federation": (lambda c: c.start_federation("fed_1"), "POST", "/v1/federations/fed_1/start", FEDERATION),
    "pause_federation": (lambda c: c.pause_federation("fed_1"), "POST", "/v1/federations/fed_1/pause", FEDERATION),
    "resume_federation": (lambda c: c.resume_federation("fed_1"), "POST", "/v1/federations/fed_1/resume", FEDERATION),
    "cancel_federation": (lambda c: c.cancel_federation("fed_1"), "POST", "/v1/federations/fed_1/cancel", FEDERATION),
    "rollback_federation": (
        lambda c: c.rollback_federation("fed_1", rounds=1),
        "POST",
        "/v1/federations/fed_1/rollback",
        FEDERATION,
    ),
    "rotate_join_token": (
        lambda c: c.rotate_join_token("fed_1"),
        "POST",
        "/v1/federations/fed_1/join-token",
        {"join_token": "j"},
    ),
    "change_plan": (
        lambda c: c.change_plan("fed_1", PlanChange.model_validate({"rounds": {"total": 9}})),
        "PATCH",
        "/v1/federations/fed_1/plan",
        FEDERATION,
    ),
    "clients": (lambda c: c.clients("fed_1"), "GET", "/v1/federations/fed_1/clients", page(CLIENT)),
    "revoke_client": (
        lambda c: c.revoke_client("fed_1", "cli_1"),
        "DELETE",
        "/v1/federations/fed_1/clients/cli_1",
        None,
    ),
    "assign_prototype": (
        lambda c: c.assign_prototype("fed_1", "cli_1", "small"),
        "PUT",
        "/v1/federations/fed_1/clients/cli_1/prototype",
        {"prototype": "small"},
    ),
    "rounds": (lambda c: c.rounds("fed_1"), "GET", "/v1/federations/fed_1/rounds", page(ROUND)),
    "round": (lambda c: c.round("rnd_1"), "GET", "/v1/rounds/rnd_1", ROUND | {"participants": []}),
    "explanation": (lambda c: c.explanation("rnd_1"), "GET", "/v1/rounds/rnd_1/explanation", EXPLANATION),
    "close_round": (lambda c: c.close_round("rnd_1", force=True), "POST", "/v1/rounds/rnd_1/close?force=true", ROUND),
    "round_provenance": (lambda c: c.round_provenance("rnd_1"), "GET", "/v1/rounds/rnd_1/provenance", PROVENANCE),
    "model_provenance": (lambda c: c.model_provenance("mdl_1"), "GET", "/v1/models/mdl_1/provenance", PROVENANCE),
    "ensemble": (lambda c: c.ensemble("rnd_1"), "GET", "/v1/rounds/rnd_1/ensemble", ENSEMBLE),
    "predict": (lambda c: c.predict("fed_1", "wards"), "POST", "/v1/federations/fed_1/predict", PREDICTION),
    "prediction": (lambda c: c.prediction("prd_1"), "GET", "/v1/predictions/prd_1", PREDICTION),
    "predictions": (lambda c: c.predictions("fed_1"), "GET", "/v1/federations/fed_1/predictions", page(PREDICTION)),
    "job_provenance": (lambda c: c.job_provenance("job_1"), "GET", "/v1/jobs/job_1/provenance", PROVENANCE),
    "forget_client": (
        lambda c: c.forget_client("fed_1", "cli_1"),
        "DELETE",
        "/v1/federations/fed_1/clients/cli_1?forget=true",
        FORGOTTEN,
    ),
    "delete_federation": (lambda c: c.delete_federation("fed_1"), "DELETE", "/v1/federations/fed_1", None),
    "change_retention": (
        lambda c: c.change_retention("fed_1", Retention(updates=3)),
        "PUT",
        "/v1/federations/fed_1/retention",
        {"updates": 3},
    ),
    "models": (lambda c: c.models(federation="fed_1"), "GET", "/v1/models?federation=fed_1", page(MODEL)),
    "model": (lambda c: c.model("mdl_1"), "GET", "/v1/models/mdl_1", MODEL),
    "promote_model": (
        lambda c: c.promote_model("mdl_1", federation="fed_1"),
        "POST",
        "/v1/models/mdl_1/promote",
        MODEL,
    ),
    "datasets": (lambda c: c.datasets(), "GET", "/v1/datasets", page(DATASET)),
    "dataset": (lambda c: c.dataset("dst_1"), "GET", "/v1/datasets/dst_1", DATASET),
    "delete_dataset": (lambda c: c.delete_dataset("dst_1"), "DELETE", "/v1/datasets/dst_1", None),
    "jobs": (lambda c: c.jobs(state="running", limit=5), "GET", "/v1/jobs?limit=5&state=running", page(JOB)),
    "job": (lambda c: c.job("job_1"), "GET", "/v1/jobs/job_1", JOB),
    "cancel_job": (lambda c: c.cancel_job("job_1"), "POST", "/v1/jobs/job_1/cancel", JOB),
    "retry_job": (lambda c: c.retry_job("job_1"), "POST", "/v1/jobs/job_1/retry", JOB),
    "status": (lambda c: c.status(), "GET", "/v1/status", STATUS),
    "workers": (lambda c: c.workers(), "GET", "/v1/workers", [WORKER]),
    "recipes": (lambda c: c.recipes(), "GET", "/v1/recipes", [RECIPE_INFO]),
    "networks": (lambda c: c.networks(), "GET", "/v1/networks", page(NETWORK)),
    "network": (lambda c: c.network("ward-net"), "GET", "/v1/networks/ward-net", NETWORK),
    "delete_network": (lambda c: c.delete_network("net_1"), "DELETE", "/v1/networks/net_1", None),
    "architectures": (lambda c: c.architectures(), "GET", "/v1/architectures", [ARCHITECTURE]),
    "create_token": (lambda c: c.create_token("ops"), "POST", "/v1/tokens", TOKEN | {"token": "pst_view_1"}),
    "tokens": (lambda c: c.tokens(), "GET", "/v1/tokens", page(TOKEN)),
    "own_token": (lambda c: c.own_token(), "GET", "/v1/token", {"id": "tok_1", "name": "ops", "role": "viewer"}),
    "rotate_token": (lambda c: c.rotate_token(), "POST", "/v1/token/rotate", {"id": "tok_1", "token": "pst_view_2"}),
    "reissue_token": (
        lambda c: c.reissue_token("fed_1", "cli_1"),
        "POST",
        "/v1/federations/fed_1/clients/cli_1/token",
        {"client_id": "cli_1", "token": "pst_dev_2"},
    ),
    "report": (
        lambda c: c.report("fed_1", targets=[0.5, 0.8]),
        "GET",
        "/v1/federations/fed_1/report?target=0.5&target=0.8",
        {"federation_id": "fed_1", "name": "digits", "state": "running", "recipe": "fedavg"} | COSTS,
    ),
    "audit": (
        lambda c: c.audit(action="token.", oldest_first=True),
        "GET",
        "/v1/audit?action=token.&oldest_first=true",
        page(AUDIT),
    ),
    "revoke_token": (lambda c: c.revoke_token("tok_1"), "DELETE", "/v1/tokens/tok_1", None),
}


def connect(answer: Any, seen: list[httpx.Request], status: int = 200) -> OperatorClient:
    def handle(request: httpx.Request) -> httpx.Response:
        request.read()
        seen.append(request)
        return httpx.Response(204) if answer is None else httpx.Response(status, json=answer)

    return OperatorClient("http://potstill.test", "pst_op_1", transport=httpx.MockTransport(handle))


@pytest.mark.parametrize("name", CALLS)
def test_each_method_calls_its_endpoint_and_returns_the_contracts_model(name: str) -> None:
    call, method, path, answer = CALLS[name]
    seen: list[httpx.Request] = []
    with connect(answer, seen) as client:
        result = call(client)
    (request,) = seen
    assert (request.method, request.url.raw_path.decode()) == (method, path)
    assert request.headers["Authorization"] == "Bearer pst_op_1"
    assert ("Idempotency-Key" in request.headers) == (method == "POST")
    if answer is None:
        assert result is None
    elif name == "rotate_join_token":
        assert result == "j"
    else:
        first, wanted = result, answer
        if isinstance(result, Page):
            first, wanted = result.items[0], answer["items"][0]
        elif isinstance(result, list):
            first, wanted = result[0], answer[0]
        assert all(getattr(first, key, None) is not None for key, value in wanted.items() if value is not None)


def test_every_public_method_is_in_the_table() -> None:
    files = {"import_model", "add_dataset", "download", "export_round", "export_ensemble", "download_prediction"}
    files |= {"register_network", "download_network", "download_first_weights"}
    others = files | {"each", "close", "connection", "url", "use_token", "events", "event_page"}
    public = {name for name in dir(OperatorClient) if not name.startswith("_")}
    assert public - others == set(CALLS)


def test_creation_sends_a_body_that_the_contract_reads_back_as_it_was() -> None:
    seen: list[httpx.Request] = []
    wanted = CREATE.model_copy(update={"local": LocalPlan(optimizer=Adam(lr=0.01))})
    connect(FEDERATION | {"join_token": "j"}, seen).create_federation(wanted, key="mine")
    assert FederationCreate.model_validate_json(seen[0].content) == wanted
    assert seen[0].headers["Idempotency-Key"] == "mine"


def test_creation_logs_its_notes(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "client_sdk"):
        made = connect(FEDERATION | {"join_token": "j", "notes": [NOTE]}, []).create_federation(CREATE)
    assert caplog.messages == ["digits: recipe.drop_worst: left out; there is no set"]
    assert made.notes[0].path == NOTE["path"]


def test_files_are_streamed_with_their_names(tmp_path: Path) -> None:
    file = tmp_path / "f.safetensors"
    file.write_bytes(b"abc")
    seen: list[httpx.Request] = []
    connect(DATASET, seen, 201).add_dataset("server & co", file)
    connect(MODEL, seen, 201).import_model(file, architecture="mlp")
    assert dict(seen[0].url.params) == {"name": "server & co"}
    assert dict(seen[1].url.params) == {"architecture": "mlp"}
    assert all(r.content == b"abc" and r.headers["Content-Length"] == "3" for r in seen)


def test_a_rounds_bundle_is_a_file_when_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = [b"half of", b"half of it"]

    def handle(request: httpx.Request) -> httpx.Response:
        assert (request.method, request.url.path) == ("GET", "/v1/rounds/rnd_1/bundle")
        body = broken.pop(0)

        def sent() -> Iterator[bytes]:
            yield body
            if broken:
                raise httpx.ReadError("the link broke")

        return httpx.Response(200, content=sent())

    with OperatorClient("http://potstill.test", "pst_op_1", transport=httpx.MockTransport(handle)) as client:
        monkeypatch.setattr(client._transport, "pause", lambda *_: None)
        made = client.export_round("rnd_1", tmp_path / "round.tar")
    assert made.read_bytes() == b"half of it"
    assert [path.name for path in tmp_path.iterdir()] == ["round.tar"]


def test_what_steers_says_what_it_means() -> None:
    seen: list[httpx.Request] = []
    connect(FEDERATION, seen).rollback_federation("fed_1", round=0)
    connect(MODEL, seen).promote_model("mdl_1", federation="fed_1", prototype="small")
    connect(JOB, seen).retry_job("job_1", exclude=["ward-7"])
    assert [json.loads(request.content) for request in seen] == [
        {"round": 0},
        {"federation": "fed_1", "prototype": "small"},
        {"exclude": ["ward-7"], "force": False},
    ]
    with pytest.raises(ValueError, match="one of the two"):
        connect(FEDERATION, seen).rollback_federation("fed_1")


def test_names_with_signs_of_their_own_meaning_stay_one_part_of_the_path() -> None:
    seen: list[httpx.Request] = []
    connect(DATASET, seen).dataset("50% of #1?/é")
    assert seen[0].url.raw_path == b"/v1/datasets/50%25%20of%20%231%3F%2F%C3%A9"


def test_each_walks_all_pages() -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        after = request.url.params.get("after")
        index = int(after or 0)
        return httpx.Response(
            200, json={"items": [JOB | {"id": f"job_{index}"}], "next": str(index + 1) if index < 2 else None}
        )

    client = OperatorClient("http://potstill.test", transport=httpx.MockTransport(handle))
    assert [job.id for job in client.each(client.jobs, state="running")] == ["job_0", "job_1", "job_2"]


def test_an_unready_service_is_an_answer_and_not_an_error() -> None:
    seen: list[httpx.Request] = []
    unready = {"ready": False, "checks": {"broker": {"ok": False, "detail": "no answer"}}}
    assert connect(unready, seen, 503).readiness().checks["broker"].detail == "no answer"
    assert len(seen) == 1


def test_an_answer_of_another_version_names_the_field_and_the_remedy() -> None:
    with pytest.raises(errors.UnexpectedAnswer, match="kind.*install the version of potstill"):
        connect(JOB | {"kind": "anneal"}, []).job("job_1")
    with pytest.raises(errors.UnexpectedAnswer, match="GET /v1/assignment.*train_gan"):
        device = Client(
            "http://t", transport=httpx.MockTransport(lambda r: httpx.Response(200, json={"action": "train_gan"}))
        )
        device.assignment(0)


def test_fields_of_a_newer_service_are_ignored() -> None:
    assert connect(JOB | {"mood": "good"}, []).job("job_1").id == "job_1"


def test_the_long_poll_waits_longer_than_the_service_holds_the_answer_back() -> None:
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(
            404, json={"type": "urn:potstill:problem:not-found", "title": "T", "status": 404, "detail": "d"}
        )

    with pytest.raises(errors.NotFound):
        Client("http://t", "pst_dev_1", transport=httpx.MockTransport(handle), timeout=10).assignment(45)
    assert seen[0].url.params["wait"] == "45"
    assert seen[0].extensions["timeout"]["read"] == 55


def test_enrolling_uses_the_join_token_and_then_the_devices_own() -> None:
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        body = {"client_id": "cli_1", "federation_id": "fed_1", "token": "pst_dev_9", "prototype": "main"}
        return httpx.Response(201, json=body if request.method == "POST" else MODEL)

    with Client("http://t", transport=httpx.MockTransport(handle)) as device:
        device.enrol("fed_1", Enrolment(name="ward-7", num_samples=3), join_token="pst_join_1", key="k")
        device.model("mdl_1")
        assert "pst_" not in repr(device)
    assert [r.headers["Authorization"] for r in seen] == ["Bearer pst_join_1", "Bearer pst_dev_9"]
    assert seen[0].headers["Idempotency-Key"] == "k"


def test_a_client_of_the_users_own_stays_open() -> None:
    with httpx.Client(transport=httpx.MockTransport(lambda r: httpx.Response(200, json=JOB))) as own:
        with OperatorClient("http://t", http_client=own) as client:
            client.job("job_1")
        assert not own.is_closed
    with OperatorClient("http://t") as client:
        owned = client._transport._http
    assert owned.is_closed


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda op: op.predict("fed_1", "digits", round=0), "round: .*greater than or equal to 1"),
        (lambda op: op.rollback_federation("fed_1", round=-1), "round: .*greater than or equal to 0"),
        (lambda op: op.rollback_federation("fed_1"), "one of the two"),
        (lambda op: op.rotate_join_token("fed_1", max_uses=0), "max_uses: .*greater than"),
        (lambda op: op.promote_model("mdl_1", prototype="a\x1b[2J"), "prototype: .*control characters"),
        (lambda op: op.retry_job("job_1", exclude=["a" * 999]), "exclude.0: has 999 characters"),
        (lambda op: op.create_token("", "viewer"), "name: "),
    ],
)
def test_an_argument_that_cannot_be_is_told_by_its_name_and_nothing_is_sent(
    ask: Callable[[OperatorClient], object], said: str
) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise AssertionError(f"{request.method} {request.url} was sent")

    with (
        OperatorClient("http://t", "pst_op_x", transport=httpx.MockTransport(refuse)) as operator,
        pytest.raises(errors.UsageError, match=said) as caught,
    ):
        ask(operator)
    assert "pydantic" not in str(caught.value)
