"""Commands that show and steer what goes on: rounds, models, jobs, workers, the service as a whole."""

import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from contract.tensors import write_file

from .command_line import FEDERATION, Service, call

ROUND: dict[str, Any] = {
    "id": "rnd_2",
    "federation_id": "fed_1",
    "index": 2,
    "state": "skipped",
    "asked": 3,
    "answered": 1,
    "lost": 1,
    "needed": 3,
    "min_updates": 2,
    "opened_at": "2026-01-01T00:00:00Z",
    "deadline_at": "2026-01-01T00:00:00Z",
    "reason": "got 1 of 2 updates by the deadline",
}
PERSON = {
    "client_id": "cli_1",
    "name": "ward-7",
    "prototype": "main",
    "state": "lost",
    "heard_at": "2026-01-01T00:00:00Z",
    "progress": {"epoch": 1, "step": 20, "of": 60},
}


def test_rounds_show_why_they_published_nothing(service: Service) -> None:
    service.on("GET", "/v1/federations/fed_1/rounds", {"items": [ROUND], "next": None})
    output = call("round", "list", "fed_1").output
    assert "skipped" in output and "1/3" in output and "got 1 of 2 updates" in output
    service.on("GET", "/v1/rounds/rnd_2", ROUND | {"participants": [PERSON]})
    output = call("round", "show", "rnd_2").output
    assert "ward-7" in output and "lost" in output and "step 20 of 60" in output


def test_a_federation_says_whom_its_round_waits_for(service: Service) -> None:
    service.on("GET", "/v1/federations/fed_1", FEDERATION | {"current_round": "rnd_2"})
    service.on("GET", "/v1/jobs", {"items": [], "next": None})
    open_round = ROUND | {"state": "collecting", "reason": None, "participants": []}
    service.on("GET", "/v1/rounds/rnd_2", open_round)
    output = call("federation", "show", "fed_1").output
    assert "now: round 2 collects until 2026-01-01 00:00:00Z, 1 of 3 devices answered" in output


COST = {
    "files": {"down": 2048, "up": 4096},
    "wire": {"down": 3072, "up": 4096},
    "seconds": {"devices": 12.5, "jobs": 0.75},
    "flops": {"training": 9000, "distillation": 100, "labelling": 20},
}
REPORT = {
    "federation_id": "fed_1",
    "name": "a",
    "state": "running",
    "recipe": "feddf",
    "networks": [{"name": "main", "role": "prototype", "architecture": "mlp", "bytes": 100, "parameters": 39}],
    "before": {},
    "rounds": [COST | {"round": 1, "state": "published", "accuracy": 0.61, "devices": 2, "answered": 2}],
    "total": COST,
    "targets": [{"target": 0.6, "round": 1, "cost": COST}, {"target": 0.9}],
    "learnt": [{"party": "server", "what": "samples per class", "when": "once, when it enrols"}],
}


def test_a_report_is_told_in_tables_and_to_programs_whole(service: Service) -> None:
    service.on("GET", "/v1/federations/fed_1/report", REPORT)
    service.on("GET", "/v1/federations/fed_1", FEDERATION)
    result = call("federation", "report", "fed_1", "--target", "0.6", "--target", "0.9")
    assert result.exit_code == 0, result.output
    for words in ("2.0 KiB", "4.0 KiB", "3.0 KiB", "61.0 %", "90.0 % was not reached", "9e+03", "samples per class"):
        assert words in result.output, words
    assert service.asked[-1].url.params.get_list("target") == ["0.6", "0.9"]
    told = json.loads(call("federation", "report", "fed_1", "--json").output)
    assert told["targets"][0]["cost"]["files"] == {"down": 2048, "up": 4096}
    assert call("federation", "report", "fed_1", "--target", "80").exit_code != 0


def test_a_report_has_the_task_s_own_figure_and_networks_by_their_names(service: Service) -> None:
    net = "net:sha256-" + "5" * 64
    network = {"name": "main", "role": "prototype", "architecture": net, "bytes": 100, "parameters": 39}
    rounds = [COST | {"round": 1, "state": "published", "measured": 0.53, "devices": 2, "answered": 2}]
    report = REPORT | {"networks": [network], "rounds": rounds, "targets": [{"target": 0.9}]}
    service.on("GET", "/v1/federations/fed_1/report", report)
    shown = FEDERATION | {"networks": {net: "net:ward-net"}, "metric": "mean_iou", "measured": 0.53}
    service.on("GET", "/v1/federations/fed_1", shown)
    output = call("federation", "report", "fed_1").output
    for words in ("mean iou", "53.0 %", "net:ward-net"):
        assert words in output, words
    assert "555" not in output and "accuracy" not in output


def test_a_round_is_found_by_its_federation_and_number(service: Service) -> None:
    service.on("GET", "/v1/federations/fed_1/rounds", {"items": [ROUND], "next": None})
    service.on("GET", "/v1/rounds/rnd_2", ROUND | {"participants": [PERSON]})
    service.on("POST", "/v1/rounds/rnd_2/close", ROUND | {"participants": []})
    assert "ward-7" in call("round", "show", "fed_1:2").output
    assert call("round", "close", "fed_1:2").exit_code == 0
    missing = call("round", "show", "fed_1:3")
    assert missing.exit_code == 4 and "fed_1 has no round 3; see: potstill round list fed_1" in missing.stderr


MODEL = {
    "id": "mdl_1", "federation_id": "fed_1", "round_id": None, "round": 1, "prototype": "main", "role": "global",
    "digest": "sha256-" + "0" * 64, "size": 1, "architecture": "mlp", "created_at": "2026-11-28T00:00:00Z",
    "url": "/v1/models/mdl_1/weights",
}  # fmt: skip
JOB = {
    "id": "job_1", "kind": "round", "state": "queued", "federation_id": "fed_1", "round_id": "rnd_1", "round": 3,
    "attempt": 0, "max_attempts": 5, "created_at": "2026-11-28T00:00:00Z",
}  # fmt: skip
RUNNING = JOB | {
    "id": "job_2", "state": "running", "attempt": 2, "worker": "wrk_1", "device": "cuda:0",
    "peak_memory_bytes": 3 << 20, "started_at": "2026-11-28T00:00:01Z",
    "progress": {"phase": "distil", "step": 40, "of": 300, "eta": 12.4},
    "resumed_from": {"phase": "distil", "step": 20},
}  # fmt: skip
WORKER = {
    "id": "wrk_1", "host": "gpu-7", "pid": 41, "device": "cuda:0", "queues": ["gpu"], "alive": True,
    "last_seen_at": "2026-11-28T00:00:00Z", "job_id": "job_2",
}  # fmt: skip


def test_steering_sends_what_was_said(service: Service) -> None:
    summary = {"items": [FEDERATION], "next": None}
    service.on("GET", "/v1/federations", summary)
    for verb in ("pause", "resume", "rollback"):
        service.on("POST", f"/v1/federations/fed_1/{verb}", FEDERATION)
    service.on("POST", "/v1/models/mdl_1/promote", MODEL)
    service.on("POST", "/v1/jobs/job_1/retry", JOB)
    assert call("federation", "pause", "digits").output == "digits: running, round 2 of 10\n"
    assert call("federation", "resume", "digits").exit_code == 0
    assert call("federation", "rollback", "digits", "--round", "0").exit_code == 0
    assert call("model", "promote", "mdl_1").output == "mdl_1: current model of main\n"
    assert call("job", "retry", "job_1", "--exclude", "ward-7").output == "job_1: queued\n"
    bodies = [json.loads(request.content or "null") for request in service.asked if request.method == "POST"]
    assert bodies == [None, None, {"round": 0}, {}, {"exclude": ["ward-7"], "force": False}]
    wrong = call("federation", "rollback", "digits")
    assert (wrong.exit_code, "one of the two" in wrong.stderr) == (1, True)


def test_a_rollback_says_what_devices_get(service: Service) -> None:
    keys = ("id", "digest", "size", "url")
    models = {"main": {name: MODEL[name] for name in keys}}
    service.on("POST", "/v1/federations/fed_1/rollback", FEDERATION | {"models": models})
    service.on("GET", "/v1/models/mdl_1", MODEL)
    assert call("federation", "rollback", "fed_1", "--rounds", "1").output.splitlines() == [
        "digits: running, round 2 of 10",
        "devices get main as it was after round 1",
    ]


def rows(output: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines()]


def test_jobs_are_listed_with_their_rounds(service: Service) -> None:
    first = JOB | {"kind": "initialize", "round_id": None, "round": None}
    service.on("GET", "/v1/jobs", {"items": [first, JOB], "next": None})
    listed = rows(call("job", "list").output)
    assert [line[:4] for line in listed] == [
        ["id", "kind", "round", "state"],
        ["job_1", "initialize", "–", "queued"],
        ["job_1", "round", "3", "queued"],
    ]


def test_a_job_is_shown_with_how_far_it_is(service: Service) -> None:
    service.on("GET", "/v1/jobs/job_2", RUNNING)
    shown = {line[0]: line[1:] for line in rows(call("job", "show", "job_2").output)}
    assert shown["now"] == "distil, 40 of 300, about 12 s left".split()
    assert shown["round"] == ["3", "(rnd_1)"]
    assert shown["attempt"] == ["2", "of", "5"]
    assert shown["went"] == "on from distil, step 20".split()
    assert shown["peak"] == "memory 3.0 MiB".split()
    assert "error" not in shown and "finished" not in shown
    assert json.loads(call("job", "show", "job_2", "--json").output)["resumed_from"] == RUNNING["resumed_from"]


def test_workers_are_listed(service: Service) -> None:
    service.on("GET", "/v1/workers", [WORKER, WORKER | {"id": "wrk_2", "alive": False, "job_id": None}])
    listed = rows(call("worker", "list").output)
    assert listed[1][:6] == ["wrk_1", "gpu-7", "41", "cuda:0", "gpu", "yes"]
    assert (listed[1][-1], listed[2][0], listed[2][5], listed[2][-1]) == ("job_2", "wrk_2", "no", "–")
    assert [each["id"] for each in json.loads(call("worker", "list", "--json").output)] == ["wrk_1", "wrk_2"]


def test_weights_are_imported_from_a_file(service: Service, tmp_path: Path) -> None:
    write_file(tmp_path / "w.safetensors", {"w": np.zeros(3, np.float32)})
    service.on("POST", "/v1/models", MODEL | {"role": "imported", "federation_id": None}, 201)
    output = call("model", "import", "w.safetensors", "--architecture", "mlp").output
    assert output.startswith("imported mdl_1 ") and "--initial-model mdl_1" in output
    (asked,) = service.asked
    assert asked.url.params["architecture"] == "mlp"
    assert asked.content == (tmp_path / "w.safetensors").read_bytes()
    missing = call("model", "import", "none.safetensors")
    assert (missing.exit_code, missing.stderr) == (1, "error: there is no file none.safetensors\n")


def test_a_device_is_given_another_prototype(service: Service) -> None:
    service.on("GET", "/v1/federations", {"items": [FEDERATION], "next": None})
    device = {"id": "cli_1", "name": "ward-7", "prototype": "small", "num_samples": 5}
    listed = [device | {"enrolled_at": "2026-01-01T00:00:00Z"}]
    service.on("GET", "/v1/federations/fed_1/clients", {"items": listed, "next": None})
    service.on("PUT", "/v1/federations/fed_1/clients/cli_1/prototype", {"prototype": "large"})
    assert (
        call("client", "assign", "digits", "ward-7", "large").output == "ward-7 trains large from the next round on\n"
    )
    assert json.loads(service.asked[-1].content) == {"prototype": "large"}
    unknown = call("client", "assign", "digits", "ward-8", "large")
    assert (unknown.exit_code, "no device named 'ward-8'" in unknown.stderr) == (4, True)


def answer_status(service: Service, ready: bool, queued: list[dict[str, Any]]) -> None:
    """Let the service be asked for its status: one worker, one federation that goes on and one that is over."""
    check = {"ok": ready, "detail": "no worker was heard for 40 s"}
    body = {"version": "1.2", "role": "viewer", "ready": ready, "checks": {"worker": check}, "free_bytes": 5}
    service.on("GET", "/v1/status", body)
    over = FEDERATION | {"id": "fed_2", "name": "letters", "state": "finished"}
    service.on("GET", "/v1/federations", {"items": [FEDERATION, over], "next": None})
    service.on("GET", "/v1/workers", [WORKER])
    lists = {"running": [RUNNING], "queued": queued}
    service.answers["GET", "/v1/jobs"] = lambda request: httpx.Response(
        200, json={"items": lists[request.url.params["state"]], "next": None}
    )


def test_the_service_on_one_screen(service: Service) -> None:
    answer_status(service, True, [JOB])
    output = call("status").output
    assert output.startswith("potstill 1.2: ready\n")
    assert "digits" in output and "running" in output and "2/10" in output
    assert "letters" not in output, "it is over"
    assert "gpu-7" in output and "round 3 of digits: distil, 40 of 300, about 12 s left" in output
    assert "oldest queued job: job_1, round 3 of digits, for " in output
    whole = json.loads(call("status", "--json").output)
    assert [each["name"] for each in whole["federations"]] == ["digits"]
    assert (whole["oldest_queued"]["id"], whole["running"][0]["id"]) == ("job_1", "job_2")


def test_a_service_that_is_not_well_says_why(service: Service) -> None:
    answer_status(service, False, [])
    output = call("status").output
    assert output.startswith("potstill 1.2: not ready\nworker: no worker was heard for 40 s\n")
    assert "oldest queued" not in output
    assert json.loads(call("status", "--json").output)["oldest_queued"] is None
