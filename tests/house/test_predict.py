"""`potstill predict` and `potstill round ensemble`, with a service that is told what to answer."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from .command_line import FEDERATION, Service, call

DIGEST = "sha256-" + "ab" * 32
PREDICTION: dict[str, Any] = {
    "id": "prd_1",
    "federation_id": "fed_1",
    "job_id": "job_1",
    "state": "queued",
    "dataset": "wards",
    "dataset_digest": DIGEST,
    "num_samples": 20,
    "ensemble": True,
    "round": 3,
    "created_at": "2026-01-01T00:00:00Z",
    "url": "/v1/predictions/prd_1/file",
}


@pytest.fixture
def asked(service: Service, monkeypatch: pytest.MonkeyPatch) -> Service:
    monkeypatch.setattr("potstill.commands.predict._LOOK_SECONDS", 0.0)
    service.on("GET", "/v1/federations", {"items": [FEDERATION], "next": None})
    service.on("POST", "/v1/federations/fed_1/predict", PREDICTION, 202)
    service.answers["GET", PREDICTION["url"]] = lambda _: httpx.Response(200, content=b"made")
    return service


def test_a_prediction_is_asked_for_waited_for_and_downloaded(asked: Service, tmp_path: Path) -> None:
    running = PREDICTION | {"state": "running", "progress": {"phase": "predict", "step": 1, "of": 4}}
    states = iter([running, PREDICTION | {"state": "done", "accuracy": 0.85}])
    asked.answers["GET", "/v1/predictions/prd_1"] = lambda _: httpx.Response(200, json=next(states))
    target = tmp_path / "out.safetensors"
    told = call("predict", "digits", "wards", "--ensemble", "--round", "3", "-o", str(target))
    assert told.exit_code == 0, told.output
    assert target.read_bytes() == b"made"
    assert "20 samples of wards, by the ensemble of round 3, 85.0 % right" in " ".join(told.output.split())
    (body,) = [json.loads(each.content) for each in asked.asked if each.method == "POST"]
    assert body == {"dataset": "wards", "ensemble": True, "round": 3}


def test_a_round_that_cannot_be_is_one_line(asked: Service, tmp_path: Path) -> None:
    told = call("predict", "fed_1", "wards", "--round", "0", "-o", str(tmp_path / "out.safetensors"))
    assert told.exit_code == 1, told.output
    assert told.stderr.startswith("error: round: ") and told.stderr.count("\n") == 1, told.stderr


def test_one_that_fails_says_why_and_leaves_no_file(asked: Service, tmp_path: Path) -> None:
    failed = PREDICTION | {"state": "failed", "error": "non_finite", "detail": "the network gives NaN"}
    asked.on("GET", "/v1/predictions/prd_1", failed)
    told = call("predict", "fed_1", "wards", "-o", str(tmp_path / "out.safetensors"))
    assert (told.exit_code, "non_finite: the network gives NaN" in " ".join(told.stderr.split())) == (8, True)
    assert list(tmp_path.iterdir()) == []


def test_an_ensemble_is_shown_and_downloaded(asked: Service, tmp_path: Path) -> None:
    net = "net:sha256-" + "5" * 64
    network = {"architecture": net, "options": {}, "digest": DIGEST}
    asked.on("GET", "/v1/federations/fed_1", FEDERATION | {"networks": {net: "net:ward-net"}})
    shown = {
        "id": "ens_1",
        "federation_id": "fed_1",
        "round_id": "rnd_3",
        "round": 3,
        "document": {
            "task": {"num_classes": 2, "input": {"shape": [2]}},
            "weigh": {"kind": "variance"},
            "combine": {"kind": "logits"},
            "members": [{"name": "ward-7", "client": "ward-7", "network": network, "size": 2048, "num_samples": 30}],
        },
        "accuracy": 0.9,
        "size": 2048,
        "removed": [],
        "predicts": False,
        "reason": "the service cannot run it",
        "created_at": "2026-01-01T00:00:00Z",
        "url": "/v1/rounds/rnd_3/ensemble/bundle",
    }
    asked.on("GET", "/v1/rounds/rnd_3/ensemble", shown)
    asked.answers["GET", str(shown["url"])] = lambda _: httpx.Response(200, content=b"tar")
    told = call("round", "ensemble", "rnd_3", str(tmp_path / "ensemble.tar"))
    said = " ".join(told.output.split())
    assert told.exit_code == 0, told.output
    for words in (
        "round 3: 1 members",
        "90.0 % right",
        "weights: variance, outputs combined: logits",
        "the service cannot run it",
        "ward-7",
        "net:ward-net",
    ):
        assert words in said
    asked.on("GET", "/v1/rounds/rnd_3/ensemble", shown | {"accuracy": None, "measured": 0.531})
    asked.on("GET", "/v1/federations/fed_1", FEDERATION | {"metric": "mean_iou"})
    assert "mean iou 53.1 % on the test set" in " ".join(call("round", "ensemble", "rnd_3").output.split())
    assert (tmp_path / "ensemble.tar").read_bytes() == b"tar"
    assert json.loads(call("round", "ensemble", "rnd_3", "--json").output)["document"]["weigh"]["kind"] == "variance"


def test_a_downloaded_ensemble_knows_no_rounds_and_must_be_whole(elsewhere: None, tmp_path: Path) -> None:
    file, data = tmp_path / "ensemble.tar", str(tmp_path / "data.npz")
    file.write_bytes(b"no tar")
    taken = "is a file here, and predicts; name a federation that is called so by its id"
    told = call("predict", str(file), data, "--round", "3", "-o", str(tmp_path / "o"))
    assert (told.exit_code, "leave out --ensemble" in " ".join(told.stderr.split())) == (2, True)
    told = call("predict", str(file), data, "-o", str(tmp_path / "o"))
    assert (told.exit_code, "potstill round ensemble" in " ".join(told.stderr.split())) == (1, True)
    assert taken in " ".join(told.stderr.split())
