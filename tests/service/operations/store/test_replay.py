"""Published models are made again bit for bit, whatever they were made by: the real worker, tiny networks."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select, update
from typer.testing import CliRunner, Result

from contract.tensors import TensorFile
from potstill.cli import app
from potstill.console import CliError
from potstill.ensembles import load_ensemble
from potstill.replay.run import Report
from service.operations.store.provenance import digest_of
from service.persistence.tables import JobRow, ModelRow, ProvenanceRow, RoundRow
from tests.service.conftest import SettingsMaker
from tests.service.plant import Plant
from tests.service.world import Fed, World
from worker.specs import JobFailure, Progress

pytestmark = pytest.mark.timeout(600)  # a loaded machine is no defect
STEPS = {"schedule": {"steps": 3, "batch_size": 8}}
PLAN = {"architecture": "disc-mlp", "options": {"hidden": [4]}}
GENERATOR = {"options": {"hidden": [4], "latent": 3}, "critic_options": {"hidden": [4]}, "steps": 2}


@pytest.fixture(scope="module")
def plant(make_settings: SettingsMaker, world_of: type[World]) -> Iterator[Plant]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("worker.checkpoints.EVERY_SECONDS", 0.0001)
        made = Plant(world_of(make_settings(device="cpu", torch_threads=1)))
        yield made
        made.close()


def equal(reports: list[Report]) -> list[str]:
    """Check that everything came out equal; return what was compared."""
    assert reports
    for report in reports:
        assert report.verdict == "equal", (report.title, report.results, report.notes)
        assert report.results
    return [f"{report.title.split(' ', 1)[1]}: {result.name}" for report in reports for result in report.results]


CASES: dict[str, tuple[dict[str, Any], dict[str, Any], set[str]]] = {
    "fedavg": ({"name": "fedavg"}, {}, {"round 1: main", "round 2: main"}),
    "fedavgm": ({"name": "fedavgm"}, {}, {"round 1: main", "round 2: main"}),
    "scaffold": (
        {"name": "scaffold"},
        {"local": {"optimizer": {"kind": "sgd", "lr": 0.1}, "objective": {"kind": "scaffold"}}},
        {"round 2: main"},
    ),
    "fedsdd with a ring": (
        {"name": "fedsdd", "options": {"groups": {"count": 2}, "members": {"rounds": 2}, **STEPS}},
        {},
        {"round 1 (groups): main~1", "round 1: main", "round 2: main", "round 2: main~1"},
    ),
    "fedgo": (
        {"name": "fedgo-small", "options": {"discriminators": {"plan": PLAN, "generator": GENERATOR}, **STEPS}},
        {},
        {"round 2: main"},
    ),
    "a gate that lets pass": (
        {"name": "feddf", "options": STEPS},
        {"rounds": {"total": 1, "gate": {"max_drop": 1.0}}},
        {"round 1: main"},
    ),
    "a gate that rejects": (
        {"name": "feddf", "options": STEPS | {"drop_worst": None}},
        {"rounds": {"total": 1, "gate": {"max_drop": 0.0}}},
        {"round 1: main"},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_everything_that_was_published_is_made_again(plant: Plant, case: str) -> None:
    recipe, changes, among = CASES[case]
    fed = plant.begin(recipe, **changes)
    plant.go_on(fed, "failed" if "rejects" in case else "finished")
    compared = equal(plant.again(fed))
    assert among <= set(compared), compared
    if case in ("fedavgm", "scaffold", "fedsdd with a ring"):
        with plant.world.store.read() as session:
            states = list(session.scalars(select(ModelRow).where(ModelRow.federation_id == fed.id)))
        assert {row.name for row in states if row.role == "state"} & {name.split(": ")[1] for name in compared}
    if case == "fedgo":
        assert {name.split(": ")[1] for name in compared} >= {"generator", "discriminator", "a", "b", "c", "d"}
    if "gate" in case:
        assert list(plant.world.round(fed, 1)["models"]) == ([] if "rejects" in case else ["main"])


def test_models_that_went_ahead_keep_their_document_when_the_round_is_given_up_and_when_it_ends(plant: Plant) -> None:
    options = {"groups": {"count": 2}, "members": {"rounds": 2}, **STEPS}
    fed = plant.begin({"name": "fedsdd", "options": options})
    plant.answer(fed)
    job = plant.claim()
    spec = plant.ledger.load(job)
    with plant.ledger.inputs(spec, lambda _: None):
        plant.child.ask(spec, lambda _: None, None, lambda made: plant.ledger.publish_groups(job, made))
    plant.ledger.fail(job, "non_finite", "teacher 'a'", final=True)
    first = plant.world.round(fed, 1)
    assert (first["state"], list(first["models"])) == ("failed", ["main~1"])
    document = plant.world.ok("GET", f"/v1/models/{first['models']['main~1']}/provenance")
    assert document["replayable"]
    assert document["document"]["part"] == "groups"
    assert [each["client"] for each in document["document"]["inputs"] if each.get("kind") == "update"] == list("abcd")
    assert "round 1 (groups): main~1" in equal(plant.again(fed))
    count = len(plant.source.all_of(fed.id))
    plant.world.ok("POST", f"/v1/jobs/{job.id}/retry")
    plant.go_on(fed)
    assert plant.world.ok("GET", f"/v1/models/{first['models']['main~1']}/provenance") == document
    compared = equal(plant.again(fed, since=count))
    assert {"round 1: main", "round 1: main~1", "round 2: main"} <= set(compared)


def test_a_job_that_was_taken_up_from_a_checkpoint(plant: Plant) -> None:
    fed = plant.begin({"name": "feddf", "options": {"schedule": {"steps": 600, "batch_size": 8}}}, rounds={"total": 1})
    plant.answer(fed)
    job = plant.claim()
    spec = plant.ledger.load(job)

    def stop(progress: Progress) -> None:
        if progress.phase.startswith("distil") and plant.child.pid is not None:
            os.kill(plant.child.pid, signal.SIGTERM)

    with (
        plant.ledger.inputs(spec, stop),
        plant.ledger.checkpointing(job) as checkpoints,
        pytest.raises(JobFailure) as stopped,
    ):
        plant.child.ask(spec, stop, checkpoints)
    assert stopped.value.code == "stopped"
    plant.ledger.give_back(job)
    plant.runner.drain()
    with plant.world.store.read() as session:
        row = session.get_one(JobRow, job.id)
        assert row.state == "done" and row.resumed_from is not None, (row.state, row.detail)
    assert "round 1: main" in equal(plant.again(fed))


def test_a_prediction_with_an_ensemble_is_made_again_and_elsewhere(
    plant: Plant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = {"total": 1, "keep_ensemble": True}
    fed = plant.begin({"name": "fedbe", "options": STEPS | {"members": {"samples": 2}}}, rounds=rounds)
    plant.go_on(fed)
    data = plant.world.show(fed)["datasets"]["validation"]
    asked = plant.world.ok("POST", f"/v1/federations/{fed.id}/predict", json={"dataset": data, "ensemble": True})
    plant.runner.drain()
    made = [report for report in plant.again(fed) if report.results[0].name == "predictions"]
    assert len(equal(made)) == 1
    file = tmp_path / "ensemble.tar"
    file.write_bytes(plant.world.op("GET", f"/v1/rounds/{plant.world.round(fed, 1)['id']}/ensemble/bundle").content)
    with TensorFile(plant.world.blobs.cache.path(plant.world.ok("GET", f"/v1/datasets/{data}")["digest"])) as samples:
        inputs, labels = samples.read("inputs"), samples.read("labels")
    with load_ensemble(file, threads=1) as loaded, monkeypatch.context() as patch:
        patch.setattr(loaded, "_computers", plant.computers)  # a process that is warm
        alone = loaded.predict(inputs, labels)
        for given, named, said in (
            (np.full_like(inputs, np.nan), labels, "inputs"),
            (inputs, labels + 3, "and the task has 3 classes"),
            (inputs, labels - 1, "labels start at 0"),
        ):
            with pytest.raises(CliError, match=f"the data: .*{said}"):
                loaded.predict(given, named)
    found = plant.world.ok("GET", f"/v1/predictions/{asked['id']}")
    with TensorFile(plant.world.blobs.cache.path(found["digest"])) as here:
        assert here.read("logits").tobytes() == alone.logits.tobytes()
        assert (here.read("predicted") == alone.predicted).all()
    assert alone.accuracy == found["accuracy"]
    file.write_bytes(file.read_bytes()[:-20_000].replace(b"blobs/", b"other/", 1))
    with pytest.raises(CliError, match="does not belong|cut off"):
        load_ensemble(file)


def test_a_retry_without_a_client(plant: Plant) -> None:
    fed = plant.begin({"name": "fedavg"}, rounds={"total": 1, "min_updates": 2})
    plant.answer(fed)
    job = plant.world.round(fed, 1)["job_id"]
    plant.world.ok("POST", f"/v1/jobs/{job}/cancel")
    plant.world.ok("POST", f"/v1/jobs/{job}/retry", json={"exclude": ["b"]})
    plant.runner.drain()
    assert plant.world.show(fed)["state"] == "finished"
    document = plant.world.ok("GET", f"/v1/jobs/{job}/provenance")["document"]
    assert [each["client"] for each in document["spec"]["updates"]] == ["a", "c", "d"]
    assert "round 1: main" in equal(plant.again(fed))


# ---------------------------------------------------------------------------------------------------------- differs
@pytest.fixture
def command(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    settings = plant.world.settings
    monkeypatch.setenv("POTSTILL_HOME", str(settings.home))
    if settings.database_url is not None:
        monkeypatch.setenv("POTSTILL_DATABASE_URL", settings.database_url)
    return lambda *words: CliRunner().invoke(app, list(words))


def forge(plant: Plant, fed: Fed, change: Callable[[dict[str, Any]], None]) -> str:
    """Change the document of round 1, digest included, as somebody with the database could; return the round's id."""
    with plant.world.store.write() as session:
        round_ = session.scalars(select(RoundRow).where(RoundRow.federation_id == fed.id)).first()
        assert round_ is not None
        row = session.scalars(select(ProvenanceRow).where(ProvenanceRow.round_id == round_.id)).one()
        document = json.loads(row.document)
        change(document)
        text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        values = {"document": text, "digest": digest_of(text)}
        session.execute(update(ProvenanceRow).where(ProvenanceRow.id == row.id).values(values))
        return round_.id


def more_samples(document: dict[str, Any]) -> None:
    document["spec"]["updates"][0]["num_samples"] += 1


def other_model(document: dict[str, Any]) -> None:
    document["outputs"]["models"]["main"] = document["spec"]["prototypes"][0]["network"]["weights"]


@pytest.mark.parametrize("change", [more_samples, other_model])
def test_what_differs_is_said_with_the_first_tensor_and_how_much(
    plant: Plant, command: Callable[..., Any], change: Callable[[dict[str, Any]], None]
) -> None:
    fed = plant.begin({"name": "fedavg"}, rounds={"total": 1})
    plant.go_on(fed)
    reference = forge(plant, fed, change)
    told = command("replay", reference, "--json")
    assert told.exit_code == 3, told.output
    (report,) = json.loads(told.stdout)
    (result,) = report["results"]
    assert (report["verdict"], result["name"], result["verdict"]) == ("differs", "main", "differs")
    model = plant.source.find(reference).document["outputs"]["models"]["main"]
    with TensorFile(plant.world.blobs.cache.path(model)) as file:
        first = sorted(file.names)[0]
    assert result["detail"].startswith(f"tensor {first!r}: max |difference| ")
    assert float(result["detail"].split("| ")[1].split(",")[0]) > 0
    plain = command("replay", reference)
    assert plain.exit_code == 3
    assert "differs" in plain.output


def test_a_document_that_was_changed_alone_is_no_difference_but_damage(
    plant: Plant, command: Callable[..., Any]
) -> None:
    fed = plant.begin({"name": "fedavg"}, rounds={"total": 1})
    plant.go_on(fed)
    reference = forge(plant, fed, lambda document: None)
    with plant.world.store.write() as session:
        session.execute(
            update(ProvenanceRow).where(ProvenanceRow.round_id == reference).values(digest="sha256-" + "0" * 64)
        )
    told = command("replay", reference)
    assert (told.exit_code, "document is damaged" in " ".join(told.stderr.split())) == (1, True)


def exported(plant: Plant) -> tuple[dict[str, Any], list[Any]]:
    """Return the newest row of the audit log, and what it says of who."""
    (row,) = plant.world.ok("GET", "/v1/audit?limit=1")["items"]
    return row, [row["action"], row["role"], row["federation_id"], row["target"]]


def test_a_round_leaves_by_a_command_and_over_http_as_the_same_file(
    plant: Plant, command: Callable[..., Any], tmp_path: Path
) -> None:
    world, fed, file = plant.world, plant.begin({"name": "fedavg"}, rounds={"total": 1}), tmp_path / "round.tar"
    plant.go_on(fed)
    round_ = world.round(fed)["id"]
    digest = world.ok("GET", f"/v1/rounds/{round_}/provenance")["digest"]
    told = command("round", "export", f"{fed.id}:1", str(file))
    assert told.exit_code == 0, told.output
    row, who = exported(plant)
    assert who == ["round.export", "command-line", fed.id, round_]
    assert row["detail"] == {"file": str(file), "provenance": digest}

    sent: list[int] = []
    answer = world.op("GET", f"/v1/rounds/{round_}/bundle", heard=lambda piece: sent.append(len(piece)))
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-tar")
    assert answer.content == file.read_bytes()
    assert int(answer.headers["content-length"]) == len(answer.content)
    assert len(sent) > 10, "in pieces, never as a whole"
    row, who = exported(plant)
    assert who == ["round.export", "operator", fed.id, round_]
    assert row["detail"] == {"provenance": digest}

    (tmp_path / "sent.tar").write_bytes(answer.content)
    again = command("replay", str(tmp_path / "sent.tar"))
    assert again.exit_code == 0, again.output


def test_a_round_whose_updates_are_gone_has_no_bundle(plant: Plant) -> None:
    world, fed = plant.world, plant.begin({"name": "fedavg"}, rounds={"total": 1})
    url = f"/v1/rounds/{world.round(fed)['id']}/bundle"
    assert world.op("GET", url).status_code == 404, "nothing was published yet"
    plant.go_on(fed)
    world.ok("PUT", f"/v1/federations/{fed.id}/retention", json={"updates": 0})
    before, _ = exported(plant)
    answer = world.op("GET", url)
    assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (410, "removed")
    assert answer.json()["detail"].startswith("4 of 7 inputs were removed")
    assert exported(plant)[0] == before, "what was refused left nobody"


def test_a_damaged_input_is_no_equal_replay_and_leaves_in_no_bundle(
    plant: Plant, command: Callable[..., Any], tmp_path: Path
) -> None:
    """One flipped bit of an update that is kept: the replay was called equal, as the model had been made with it."""
    world, fed, file = plant.world, plant.begin({"name": "fedavg"}, rounds={"total": 1}), tmp_path / "round.tar"
    plant.go_on(fed)
    source = next(each for each in plant.source.find(f"{fed.id}:1").document["inputs"] if each["kind"] == "update")
    path = world.blobs.cache.path(source["digest"])
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    told = command("replay", f"{fed.id}:1", "--json")
    assert told.exit_code == 4, told.output
    (report,) = json.loads(told.stdout)
    (result,) = report["results"]
    assert (report["verdict"], result["verdict"], result["detail"]) == ("damaged", "damaged", source["digest"])
    assert source["client"] in result["name"]
    left = command("round", "export", f"{fed.id}:1", str(file))
    assert (left.exit_code, "is damaged" in " ".join(left.stderr.split()), file.exists()) == (1, True, False)
    answer = world.op("GET", f"/v1/rounds/{world.round(fed)['id']}/bundle")
    assert (answer.status_code, answer.json()["client"]) == (503, source["client"])


def test_a_damaged_result_is_told_from_one_that_differs(plant: Plant, command: Callable[..., Any]) -> None:
    fed = plant.begin({"name": "fedavg"}, rounds={"total": 1})
    plant.go_on(fed)
    path = plant.world.blobs.cache.path(plant.source.find(f"{fed.id}:1").document["outputs"]["models"]["main"])
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    told = command("replay", f"{fed.id}:1", "--json")
    assert told.exit_code == 4, told.output
    (result,) = json.loads(told.stdout)[0]["results"]
    assert (result["verdict"], result["detail"]) == (
        "damaged",
        "the stored file is; it was made again, as it was published",
    )
