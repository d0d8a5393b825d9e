"""A device's whole part, against a service in process."""

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch

from client_sdk import errors, identity, runner
from client_sdk.state import StateFolder, default_folder
from contract.tensors import check_file, parse_header
from contract.wire.problems import KINDS, TYPE_PREFIX

Run = Callable[..., Any]


def problem(kind: str, **members: Any) -> Callable[[httpx.Request], httpx.Response]:
    """Return a fault that answers with this problem."""
    body = {"type": TYPE_PREFIX + kind, "title": "T", "status": KINDS[kind][0], "detail": f"{kind} it is"} | members
    return lambda request: httpx.Response(KINDS[kind][0], json=body)


# The way through


def test_a_federation_from_enrolment_to_the_final_model(service: Any, take_part: Run, tmp_path: Path) -> None:
    told: list[int] = []
    report = take_part(on_round=lambda round_report: told.append(round_report.index))
    assert (report.state, report.rounds_trained, told) == ("finished", 2, [1, 2])
    assert (report.client_id, report.client_name, report.num_samples) == ("cli_1", "ward-7", 40)
    assert report.accuracy == 0.75
    assert report.losses[1] < report.losses[0]
    assert report.model_path.read_bytes() == service.updates[-1]
    assert json.loads(service.sent("POST", ".*/clients")[0].content) == {
        "name": "ward-7",
        "num_samples": 40,
        "capabilities": {},
    }


def test_the_uploaded_file_says_what_the_contract_asks_for_and_no_times(service: Any, take_part: Run) -> None:
    take_part(rounds=1)
    metadata = parse_header(service.updates[0], len(service.updates[0])).metadata
    assert (metadata["num_samples"], metadata["base_model"]) == ("40", "mdl_0")
    metrics = json.loads(metadata["metrics"])
    assert set(metrics) == {"loss", "accuracy", "steps"} and metrics["steps"] == 2 * 5


class Bucket:
    """A store beside the service: takes a file by a presigned address, and has it when a delivery names it."""

    def __init__(self, service: Any, *, open: bool = True):
        self.service, self.open = service, open
        self.files: dict[str, bytes] = {}
        self.named = 0

    def handle(self, request: httpx.Request) -> httpx.Response:
        request.read()
        if request.url.host == "bucket.test":
            assert "Authorization" not in request.headers, "the device's token is not the store's"
            assert request.headers["x-checksum"] == "of the bytes"
            self.files[request.url.path.strip("/")] = request.content
            return httpx.Response(200 if self.open else 503)
        if request.url.path == "/v1/staging":
            place = {"name": "one", "url": "http://bucket.test/one", "headers": {"x-checksum": "of the bytes"}}
            return httpx.Response(201, json=place | {"expires_at": "2026-01-01T00:00:00Z"})
        if "staged" in request.url.params:
            assert not request.content
            body = self.files.pop(request.url.params["staged"])
            headers = {"Authorization": request.headers["Authorization"]}
            request = httpx.Request("PUT", request.url.copy_with(query=None), headers=headers, content=body)
            self.named += 1
        answer: httpx.Response = self.service.handle(request)
        return answer


@pytest.mark.parametrize("open", [True, False], ids=["open", "away"])
def test_deliveries_go_straight_into_the_bucket_or_the_usual_way(service: Any, take_part: Run, open: bool) -> None:
    service.want_gan(rounds=1)
    service.want_discriminator = True
    bucket = Bucket(service, open=open)
    with httpx.Client(transport=httpx.MockTransport(bucket.handle)) as http:
        report = take_part(rounds=1, direct=True, http_client=http)
    assert report.rounds_trained == 1 and len(service.updates) == len(service.gans) == 1
    assert service.discriminator is not None
    assert bucket.named == (3 if open else 0)


def test_without_being_asked_nothing_goes_into_a_bucket(service: Any, take_part: Run) -> None:
    bucket = Bucket(service)
    with httpx.Client(transport=httpx.MockTransport(bucket.handle)) as http:
        take_part(rounds=1, http_client=http)
    assert (len(service.updates), bucket.named) == (1, 0)


def test_the_same_device_uploads_the_same_bytes(service: Any, take_part: Run, tmp_path: Path) -> None:
    take_part(rounds=1)
    first = service.updates.pop()
    service.round, service.current = 1, "mdl_0"
    torch.manual_seed(99)  # the process's own generator plays no part
    take_part(rounds=1, state_dir=tmp_path / "other")
    assert service.updates.pop() == first
    service.round, service.current = 1, "mdl_0"
    take_part(rounds=1, state_dir=tmp_path / "third", name="ward-8")
    assert service.updates.pop() != first


def test_label_counts_are_told_when_enrolling_and_only_if_given(service: Any, take_part: Run, blobs: Any) -> None:
    take_part(label_counts=np.bincount(blobs[1]), rounds=1)
    assert json.loads(service.sent("POST", ".*/clients")[0].content)["label_counts"] == [20, 20]


def test_rounds_limits_the_run_and_the_next_run_goes_on_without_enrolling(service: Any, take_part: Run) -> None:
    assert take_part(rounds=1).state == "running"
    report = take_part(join_token=None)
    assert (report.state, report.client_id, [r.index for r in report.rounds]) == ("finished", "cli_1", [2])
    assert len(service.sent("POST", ".*/clients")) == 1


def test_a_device_token_replaces_enrolment(service: Any, take_part: Run) -> None:
    service.token, service.name = "pst_dev_given", "ward-7"
    assert take_part(join_token=None, token="pst_dev_given").state == "finished"
    assert service.sent("POST", ".*/clients") == []


def defaults() -> dict[str, Any]:
    """What a device does when nobody says otherwise."""
    given: dict[str, Any] = runner.DeviceRun.__init__.__kwdefaults__  # type: ignore[assignment]
    return given


def test_waiting_asks_again_without_a_hot_loop(service: Any, take_part: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []
    monkeypatch.setitem(defaults(), "sleep", naps.append)
    for _ in range(3):
        service.fault("GET", "/v1/assignment", lambda request: waiting(service))
    assert take_part().state == "finished"
    assert naps == [0.2, 0.4, 0.8]
    asked = [float(request.url.params["wait"]) for request in service.sent("GET", "/v1/assignment")]
    assert asked[:3] == [0, 30, 30]


def test_who_waits_is_told_for_what_at_once(
    service: Any, take_part: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(defaults(), "sleep", lambda seconds: None)
    service.fault("GET", "/v1/assignment", lambda request: waiting(service))
    take_part(progress="bar")
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "a step is tried with 8 samples on cpu"
    assert said[1] == f"{service.name}: 40 samples, cpu; asks http://potstill.test for work"
    assert said[2] == f"{service.name}: waiting: two more clients are needed"


def waiting(service: Any) -> httpx.Response:
    body = json.loads(service._assignment(None).content)
    return httpx.Response(200, json=body | {"action": "wait", "reason": "two more clients are needed"})


# Crashes and refusals


def test_a_crash_before_the_upload_sends_the_same_bytes_and_trains_no_second_time(
    service: Any, take_part: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(request: httpx.Request) -> httpx.Response:
        raise KeyboardInterrupt

    service.fault("PUT", ".*/update", crash)
    with pytest.raises(KeyboardInterrupt):
        take_part()
    kept = (tmp_path / "device" / "pending.safetensors").read_bytes()
    monkeypatch.setattr("client_sdk.rounds.train_local", None)
    report = take_part(rounds=1)
    assert service.updates == [kept]
    assert report.rounds[0].seconds == 0 and report.losses[0] > 0
    assert not list((tmp_path / "device").glob("pending*"))
    keys = {request.headers["Idempotency-Key"] for request in service.sent("PUT", ".*/update")}
    assert len(keys) == 1


def test_a_pending_update_of_another_round_is_trained_anew(service: Any, take_part: Run, tmp_path: Path) -> None:
    def crash(request: httpx.Request) -> httpx.Response:
        raise KeyboardInterrupt

    service.fault("PUT", ".*/update", crash)
    with pytest.raises(KeyboardInterrupt):
        take_part()
    service.round = 2
    assert [r.index for r in take_part().rounds] == [2]
    assert len(service.updates) == 1


@pytest.mark.parametrize("kind", ["round-closed", "stale-base-model", "not-selected", "already-delivered"])
def test_an_update_that_is_no_longer_wanted_is_skipped(
    service: Any, take_part: Run, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        service.round = 2
        return problem(kind)(request)

    service.fault("PUT", ".*/update", refuse)
    report = take_part(progress="bar")
    assert [(r.index, r.uploaded) for r in report.rounds] == [(1, False), (2, True)]
    assert report.rounds[0].reason == f"{kind} it is"
    assert "no longer wanted" in capsys.readouterr().err


def test_a_round_that_refuses_twice_ends_the_run_instead_of_training_for_ever(service: Any, take_part: Run) -> None:
    for _ in range(2):
        service.fault("PUT", ".*/update", problem("stale-base-model"))
    with pytest.raises(errors.StaleBaseModel):
        take_part()


def test_a_file_that_is_refused_for_good_is_not_kept(service: Any, take_part: Run, tmp_path: Path) -> None:
    service.fault("PUT", ".*/update", problem("invalid-tensors", tensor="0.weight"))
    with pytest.raises(errors.InvalidTensors) as caught:
        take_part()
    assert caught.value.members == {"tensor": "0.weight"}
    assert not list((tmp_path / "device").glob("pending*"))


@pytest.mark.parametrize("kind", ["incomplete-body", "digest-mismatch"])
def test_bytes_that_suffered_on_the_way_are_sent_again(service: Any, take_part: Run, tmp_path: Path, kind: str) -> None:
    service.fault("PUT", ".*/update", problem(kind))
    assert take_part(rounds=1).rounds_trained == 1
    for _ in range(3):
        service.fault("PUT", ".*/update", problem(kind))
    with pytest.raises(errors.ApiError, match=f"{kind} it is"):
        take_part()
    assert (tmp_path / "device" / "pending.safetensors").exists()


def test_a_federation_that_ends_during_the_discriminators_training_ends_the_run(service: Any, take_part: Run) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        service.state = "finished"
        return problem("invalid-transition", state="cancelled")(request)

    service.want_discriminator = True
    service.fault("PUT", ".*/discriminator", refuse)
    report = take_part()
    assert (report.state, report.rounds_trained) == ("finished", 0)


def test_a_lost_answer_to_an_upload_is_asked_for_again(
    service: Any, take_part: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("client_sdk.transport.BACKOFF_FIRST", 0.0)

    def lost(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("connection reset")

    service.fault("PUT", ".*/update", lost)
    assert take_part(rounds=1).rounds_trained == 1
    first, second = service.sent("PUT", ".*/update")
    assert first.content == second.content
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]


def test_a_refused_token_says_what_to_do(service: Any, take_part: Run, tmp_path: Path) -> None:
    take_part(rounds=1)
    service.token = "pst_dev_other"
    with pytest.raises(errors.Unauthorized, match="revoked.*delete that folder") as caught:
        take_part()
    assert str(tmp_path / "device") in caught.value.detail
    assert "secret" not in str(caught.value)


def test_a_wrong_join_token_enrols_nobody_and_can_be_put_right(service: Any, take_part: Run) -> None:
    with pytest.raises(errors.Unauthorized):
        take_part(join_token="pst_join_wrong")
    assert take_part().state == "finished"
    keys = {request.headers["Idempotency-Key"] for request in service.sent("POST", ".*/clients")}
    assert len(keys) == 1


def test_a_join_token_that_is_spent_lets_nobody_in(service: Any, take_part: Run) -> None:
    service.fault("GET", ".*/card", problem("join-token-spent"))
    service.fault("POST", ".*/clients", problem("join-token-spent"))
    with pytest.raises(errors.JoinTokenSpent):
        take_part()


@pytest.mark.parametrize("named", [None, ["a", "b"]], ids=["numbered", "named"])
def test_an_enrolment_whose_answer_was_lost_is_repeated_word_for_word_when_it_spent_the_token(
    service: Any, take_part: Run, named: list[str] | None
) -> None:
    def lost(request: httpx.Request) -> httpx.Response:
        service.handle(request)
        raise KeyboardInterrupt

    service.classes = named
    service.fault("POST", ".*/clients", lost)
    with pytest.raises(KeyboardInterrupt):
        take_part(classes=["a", "b"])
    service.fault("GET", ".*/card", problem("join-token-spent"))
    assert take_part(classes=["a", "b"], rounds=1).rounds_trained == 1
    _, first, again = service.sent("POST", ".*/clients")  # the first one twice: as it came, and as it was answered
    assert first.content == again.content
    assert first.headers["Idempotency-Key"] == again.headers["Idempotency-Key"]
    assert (b'"classes"' in again.content) == (named is not None)


def test_a_taken_name_and_an_ended_federation_are_told_apart(service: Any, take_part: Run) -> None:
    service.fault("POST", ".*/clients", problem("name-taken"))
    with pytest.raises(errors.NameTaken, match="another device is called 'ward-7'"):
        take_part()
    service.fault("POST", ".*/clients", problem("invalid-transition", state="cancelled"))
    with pytest.raises(errors.FederationEnded) as caught:
        take_part()
    assert caught.value.state == "cancelled"


# State on disk


def test_the_token_is_readable_by_its_user_only(take_part: Run, tmp_path: Path) -> None:
    take_part()
    file = tmp_path / "device" / "identity.json"
    assert "pst_dev_secret" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "device").stat().st_mode) == 0o700


def test_the_folder_keeps_one_model_only(take_part: Run, tmp_path: Path) -> None:
    report = take_part()
    assert list((tmp_path / "device" / "models").iterdir()) == [report.model_path]
    check_file(report.model_path)


def test_another_name_or_federation_in_the_same_folder_is_refused(take_part: Run) -> None:
    take_part(rounds=1)
    with pytest.raises(errors.StateError, match="belongs to client 'ward-7', not 'ward-8'"):
        take_part(name="ward-8")
    with pytest.raises(errors.StateError, match="belongs to federation fed_1"):
        take_part(federation="fed_2")


def test_the_default_name_comes_from_the_host_and_is_remembered(
    service: Any, take_part: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "ward pc.example.org")
    first = take_part(name=None, rounds=1).client_name
    assert first.startswith("ward-pc-") and len(first) == len("ward-pc-") + 4
    assert take_part(name=None).client_name == first
    assert identity.default_name() != identity.default_name()


def test_two_processes_do_not_share_a_folder(take_part: Run, tmp_path: Path) -> None:
    with (
        StateFolder(tmp_path / "device").locked(),
        pytest.raises(errors.StateError, match="in use by another process"),
    ):
        take_part()


def test_default_folders_follow_xdg_and_keep_devices_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert default_folder("http://h:80/", "fed_1", None) == Path("/state/potstill/h/fed_1")
    assert default_folder("http://h:8000", "fed_1", "../ward 7") == Path("/state/potstill/h_8000/fed_1/devices/_ward_7")
    monkeypatch.delenv("XDG_STATE_HOME")
    assert default_folder("http://h", "fed_1", None) == Path.home() / ".local/state/potstill/h/fed_1"


# What is refused early


NOTHING: Any = []


@pytest.mark.parametrize(
    "empty", [(np.zeros((0, 2), "float32"), np.zeros(0, int)), torch.utils.data.Subset[Any](NOTHING, [])]
)
def test_an_empty_data_set_is_refused_before_any_request(
    service: Any, take_part: Run, empty: Any, tmp_path: Path
) -> None:
    with pytest.raises(errors.DatasetError, match="is empty"):
        take_part(empty)
    assert service.requests == [] and not (tmp_path / "device").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"federation": "digits"}, "federation: expected an id such as fed_"),
        ({"name": "ward/7"}, "name: 'ward/7': the characters"),
        ({"rounds": 0}, "rounds: expected at least 1"),
        ({"label_counts": [20, 19]}, r"label_counts: expected one count per class that sum to the 40 samples"),
        ({"label_counts": [41, -1]}, "label_counts"),
        ({"label_counts": []}, "label_counts"),
        ({"join_token": None}, "join_token: this device is not enrolled"),
    ],
)
def test_arguments_that_cannot_work_are_refused_before_any_request(
    service: Any, take_part: Run, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(errors.UsageError, match=words):
        take_part(**options)
    assert service.requests == []


def test_data_that_do_not_fit_the_task_are_refused_before_training(service: Any, take_part: Run, blobs: Any) -> None:
    with pytest.raises(errors.DatasetError, match="label 2; the federation's 2 classes are 0 to 1"):
        take_part((blobs[0], np.full(40, 2)))
    assert service.sent("GET", ".*/weights") == []


def test_a_loss_that_is_not_finite_uploads_nothing(service: Any, take_part: Run, blobs: Any) -> None:
    service.plan["optimizer"] = {"kind": "sgd", "lr": 10.0}
    with pytest.raises(errors.TrainingError, match="nothing was uploaded"):
        take_part((blobs[0] * np.float32(1e30), blobs[1]))
    assert service.sent("PUT", ".*") == []


def test_data_that_do_not_fit_are_told_before_the_device_joins(service: Any, take_part: Any) -> None:
    """A device that joined and then failed would be waited for by every round."""
    x, y = np.zeros((4, 9), np.float32), np.zeros(4, np.int64)
    with pytest.raises(errors.DatasetError, match="one sample has shape"):
        take_part((x, y))
    assert not service.sent("POST", ".*")
