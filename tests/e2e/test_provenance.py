"""What was published is made again bit for bit: here, from a bundle, from a backup taken while everything goes on."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from client_sdk import OperatorClient
from contract.wire.federations import FederationCreate
from potstill.cli import app
from tools.deployment import (
    ROOT,
    Deployment,
    add_server_data,
    federation_request,
    run_devices,
    run_federation,
    wait_for,
)

RECIPE = {"name": "feddf", "options": {"schedule": {"steps": 3, "lr": "constant"}}}


def potstill(home: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command line on a home folder."""
    variables = {"POTSTILL_HOME": str(home), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "potstill", *words],
        env=os.environ | variables | env,
        cwd=home.parent,
        capture_output=True,
        text=True,
        timeout=150,
    )


def here(home: Path, *words: str) -> Result:
    """Run the command line on a home folder in this process, which has its imports done."""
    return CliRunner().invoke(app, list(words), env={"POTSTILL_HOME": str(home)})


def damage(path: Path) -> None:
    """Change the last byte of a file."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.unlink()  # it may have a second name in a backup
    path.write_bytes(content)


def blob(home: Path, digest: str) -> Path:
    return home / "blobs" / digest[7:9] / digest[7:]


@pytest.mark.slow
def test_replay_bundle_and_verify(deployment: Deployment, tmp_path: Path) -> None:
    """FedDF with distillation, from first models to a bundle that another machine replays."""
    add_server_data(deployment)
    request = federation_request("again", RECIPE, retention={"updates": 1})
    finished, _ = run_federation(deployment, tmp_path / "devices", request)
    home, operator = deployment.home, deployment.operator

    shown = operator.model_provenance(finished.models["main"].id)
    assert shown.replayable
    assert shown.document["outputs"]["models"]["main"] == finished.models["main"].digest
    assert shown.document["environment"]["threads"] == 1
    assert ["round", 2, "distil", "main"] in shown.document["seeds"]["derived"]
    assert {each["kind"] for each in shown.document["inputs"]} == {"update", "model", "dataset"}

    # every publication: the first model again, round 1 without its updates
    told = potstill(home, "replay", "--all", "again", "--json")
    assert told.returncode == 4
    verdicts = [(each["title"].split()[1], each["verdict"]) for each in json.loads(told.stdout)]
    assert verdicts == [("initialize", "equal"), ("round", "missing"), ("round", "equal")]

    bundle = tmp_path / "round.tar"
    assert here(home, "round", "export", "again:2", str(bundle)).exit_code == 0
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    told = potstill(elsewhere / "none", "replay", str(bundle), "--json")
    assert told.returncode == 0, told.stderr
    cut = tmp_path / "cut.tar"
    cut.write_bytes(bundle.read_bytes()[: bundle.stat().st_size // 2])
    refused = here(elsewhere / "none", "replay", str(cut))
    assert (refused.exit_code, "cut off" in refused.stderr) == (1, True), refused.stderr

    assert here(home, "verify").exit_code == 0
    damage(blob(home, finished.models["main"].digest))
    verified = here(home, "verify", "--json")
    assert verified.exit_code == 3
    (finding,) = json.loads(verified.stdout)["findings"]
    assert finding == {"digest": finished.models["main"].digest, "what": "model", "state": "damaged"}


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_a_backup_from_the_middle_goes_on_elsewhere_to_the_same_models(deployment: Deployment, tmp_path: Path) -> None:
    """Taken while devices send and the worker publishes; the restored service ends with the undisturbed models."""
    add_server_data(deployment)
    recipe = {"name": "feddf", "options": {"schedule": {"steps": 500}}}  # so that the first backup is in the middle
    request = federation_request("moving", recipe, rounds={"total": 3, "min_clients": 3, "min_updates": 3})
    created = deployment.operator.create_federation(FederationCreate.model_validate(request))
    deployment.operator.start_federation(created.id)
    devices = threading.Thread(
        target=run_devices, args=(deployment, created.id, created.join_token, tmp_path / "devices"), daemon=True
    )
    devices.start()
    wait_for(lambda: deployment.operator.federation(created.id).round >= 2, why="no second round")
    middle, folder = tmp_path / "middle.tar", tmp_path / "backups"
    taken = potstill(deployment.home, "backup", str(middle), "--with-secret", "--json")
    assert taken.returncode == 0, taken.stderr
    first = potstill(deployment.home, "backup", str(folder), "--json")
    assert first.returncode == 0, first.stderr
    devices.join(timeout=150)
    undisturbed = deployment.operator.federation(created.id)
    assert undisturbed.state == "finished"
    second = potstill(deployment.home, "backup", str(folder), "--json")
    told = json.loads(second.stdout)
    assert 0 < told["new_bytes"] < told["bytes"]  # only what was new
    port = int(deployment.url.rpartition(":")[2])
    deployment.close()

    home = tmp_path / "restored"
    back = potstill(home, "restore", str(middle))
    assert back.returncode == 0, back.stderr
    assert potstill(home, "verify").returncode == 0
    restored = Deployment(home, port)
    try:
        restored.operator.close()
        restored.operator = OperatorClient(restored.url, deployment.token)
        restored.start_api()
        before = restored.operator.federation(created.id)
        assert before.state == "running"
        assert before.models["main"].digest != undisturbed.models["main"].digest
        restored.start_worker()
        run_devices(restored, created.id, created.join_token, tmp_path / "devices")
        after = restored.operator.federation(created.id)
    finally:
        restored.close()
    assert after.state == "finished"
    assert after.models["main"].digest == undisturbed.models["main"].digest

    newest = tmp_path / "newest"
    assert potstill(newest, "restore", str(folder)).returncode == 0
    assert blob(newest, undisturbed.models["main"].digest).exists()
    told = potstill(newest, "restore", str(folder))
    assert (told.returncode, "not empty" in told.stderr) == (1, True)
