"""Every block of the documents that calls the service with curl does what the page says, against real processes."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from contract.tensors import TensorFile, write_file
from contract.wire.federations import FederationCreate
from tools.deployment import ROOT, Deployment, federation_request, running, wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(shutil.which("curl") is None, reason="NO curl HERE: its lines in the documents are not tested"),
]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = [
    (page.name, block)
    for page in PAGES
    for block in FENCE.findall(page.read_text(encoding="utf-8"))
    if re.search(r"\bcurl\b", block)
]


class Shell:
    """A folder and an environment in which the pages' lines are typed."""

    def __init__(self, deployment: Deployment, folder: Path):
        self.deployment, self.folder = deployment, folder
        programs = folder / "programs"
        programs.mkdir()
        potstill = programs / "potstill"
        potstill.write_text(f'#!/bin/sh\nexec {sys.executable} -m potstill "$@"\n')
        potstill.chmod(0o755)
        (folder / ".curlrc").write_text("fail\nno-progress-meter\nmax-time = 60\n")
        (folder / ".potstill").mkdir()
        (folder / ".potstill" / "operator.token").write_text(deployment.token)
        self.env = os.environ | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "CURL_HOME": str(folder),
            "POTSTILL_URL": deployment.url,
            "POTSTILL_TOKEN": deployment.token,
        }
        self.names = {"http://127.0.0.1:8080": deployment.url}

    def type(self, lines: str) -> str:
        """Run lines of a page, with this installation's names in the place of the page's; return what they print."""
        for name, value in self.names.items():
            lines = lines.replace(name, value)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", lines], cwd=self.folder, env=self.env, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{lines}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with running(Deployment(tmp_path_factory.mktemp("home"))) as deployment:
        shell = Shell(deployment, tmp_path_factory.mktemp("shell"))
        rounds = {"total": 2, "min_clients": 1, "min_updates": 1}
        request: dict[str, Any] = federation_request("first", {"name": "fedavg"}, rounds=rounds, datasets={})
        request["prototypes"] = [{"name": "main", "architecture": "mlp", "options": {"hidden": [4]}}]
        created = deployment.operator.create_federation(FederationCreate.model_validate(request))
        deployment.operator.start_federation(created.id)
        shell.names |= {"fed_01k...": created.id, "fed_01k": created.id, "pst_join_1": created.join_token}
        yield shell


def _joined(block: str) -> list[str]:
    return [line for line in re.sub(r"\\\n\s*", " ", block).splitlines() if line.strip()]


def _asked_to_train(shell: Shell, line: str) -> dict[str, Any]:
    def ask() -> dict[str, Any] | None:
        found: dict[str, Any] = json.loads(shell.type(line))
        return found if found["action"] == "train" else None

    return dict(wait_for(ask, why="no assignment to train"))


def _update(shell: Shell, base: str) -> None:
    """Train nothing, and write the update: more than the thousand bytes that the page's first piece has."""
    with TensorFile(shell.folder / "model.safetensors") as file:
        arrays = {name: file.read(name) for name in file.names}
    write_file(shell.folder / "update.safetensors", arrays, {"num_samples": "120", "base_model": base})
    assert (shell.folder / "update.safetensors").stat().st_size > 1000


def enrol_train_and_deliver(shell: Shell, block: str) -> None:
    names, enrol, ask, fetch, beat, deliver = _joined(block)
    for pair in names.split():
        name, _, value = pair.partition("=")
        shell.env[name] = shell.names[value]
    shell.env["DEVICE"] = json.loads(shell.type(enrol))["token"]
    asked = _asked_to_train(shell, ask)
    shell.env |= {"ROUND": asked["round"]["id"], "MODEL": asked["model"]["id"]}
    shell.type(fetch)
    assert json.loads(shell.type(beat))["round_id"] == asked["round"]["id"]
    _update(shell, asked["model"]["id"])
    assert json.loads(shell.type(deliver))["round_id"] == asked["round"]["id"]


def deliver_in_pieces(shell: Shell, block: str) -> None:
    first = shell.env["ROUND"]
    asked = _asked_to_train(shell, 'curl "$URL/v1/assignment?wait=5" -H "Authorization: Bearer $DEVICE"')
    shell.env |= {"ROUND": asked["round"]["id"], "MODEL": asked["model"]["id"]}
    assert shell.env["ROUND"] != first
    _update(shell, asked["model"]["id"])
    said = shell.type(block)
    assert "Upload-Offset: 1000" in said.replace("upload-offset", "Upload-Offset")
    assert json.loads(said.splitlines()[-1])["round_id"] == asked["round"]["id"]


def fetch_the_model(shell: Shell, block: str) -> None:
    wait_for(lambda: shell.deployment.operator.federation(shell.names["fed_01k"]).state == "finished")
    (shell.folder / "model.safetensors").unlink()
    shell.type(block)
    with TensorFile(shell.folder / "model.safetensors") as file:
        assert file.names


def show_provenance(shell: Shell, block: str) -> None:
    model = shell.deployment.operator.models(federation=shell.names["fed_01k"]).items[-1]
    shell.names["mdl_01k..."] = model.id
    assert model.digest in shell.type(block)


def show_costs(shell: Shell, block: str) -> None:
    found = json.loads(shell.type(block))
    assert [each["target"] for each in found["targets"]] == [0.8, 0.9]
    assert [each["round"] for each in found["rounds"]] == [1, 2]


def watch(shell: Shell, block: str) -> None:
    """A stream has no end by itself: a second of it is enough."""
    told, stream = _joined(block)
    shell.names["watch digits"] = "watch first"
    for line, said in ((told, "finished"), (stream, "event: round.")):
        shell.names["curl "] = "curl --max-time 1 "
        assert said in shell.type(f"timeout 20 {line} || test $? = 28")


# In this order: what a block leaves, the next one finds.
CASES: list[tuple[str, str, Callable[[Shell, str], None]]] = [
    ("devices.md", "/clients", enrol_train_and_deliver),
    ("devices.md", "/v1/uploads", deliver_in_pieces),
    ("quickstart.md", "operator.token", fetch_the_model),
    ("data.md", "/provenance", show_provenance),
    ("costs.md", "/report", show_costs),
    ("watching.md", "/events", watch),
]


def test_every_block_with_curl_is_typed() -> None:
    typed = [[does for name, what, does in CASES if name == page and what in block] for page, block in BLOCKS]
    assert [len(each) for each in typed] == [1] * len(CASES), BLOCKS


@pytest.mark.parametrize(("page", "what", "does"), CASES, ids=[does.__name__ for _, _, does in CASES])
def test_a_block_does_what_its_page_says(
    shell: Shell, page: str, what: str, does: Callable[[Shell, str], None]
) -> None:
    (block,) = [block for name, block in BLOCKS if name == page and what in block]
    does(shell, block)
