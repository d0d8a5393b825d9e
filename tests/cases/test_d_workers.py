"""D: workers. Most of these cases are breaks of running processes: see tests/chaos and the index."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from contract.wire.federations import FederationCreate
from tests.e2e.test_kills import _Device
from tools.deployment import JOBS, ROOT, Deployment, federation_request, running, wait_for


def _module_level(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield what runs when a module is imported."""
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            todo += ast.iter_child_nodes(node)


def test_d02_nothing_touches_cuda_before_the_child() -> None:
    """The worker forks nothing, imports no torch, and no module asks for CUDA when it is imported."""
    code = "import sys, worker.app, worker.runner, worker.tasks; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.split()[0] == "False", done.stdout + done.stderr
    for package in ("worker", "contract", "client_sdk"):
        for path in (ROOT / package).rglob("*.py"):
            for node in _module_level(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute):
                    assert node.attr != "cuda", f"{path}:{node.lineno}"
    compose = (ROOT / "docker-compose.yml").read_text() + (ROOT / "Dockerfile").read_text()
    assert "prefork" not in compose and "--pool=threads" in compose


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Deployment]:
    """An installation whose jobs may have 600 MB."""
    made = Deployment(
        tmp_path / "home",
        constants={f"{JOBS}.MAX_ATTEMPTS": 3, f"{JOBS}.RETRY_SECONDS": 0.5},
        POTSTILL_JOB_MEMORY_BYTES=str(600 * 2**20),
    )
    with running(made):
        yield made


@pytest.mark.slow
def test_d04_a_job_that_is_always_too_large(small: Deployment, tmp_path: Path) -> None:
    """A round whose data take 2.5 GB fails three times, then for good, and says why; another one beside it goes on."""
    noise = {"distil": {"data": {"kind": "noise", "count": 10_000_000}}}
    rounds = {"total": 1, "min_clients": 2, "min_updates": 2}
    made: dict[str, Any] = {}
    for name, recipe in (("poisoned", {"name": "feddf", "options": noise}), ("good", {"name": "fedavg"})):
        body = federation_request(name, recipe, datasets={}, rounds=rounds)
        made[name] = small.operator.create_federation(FederationCreate.model_validate(body))
        small.operator.start_federation(made[name].id)
    for created in made.values():
        for number, device in enumerate([_Device(small, created, name, tmp_path) for name in ("a", "b")]):
            url, update = device.update(small, number)
            answer = httpx.put(url, content=update, headers={"Authorization": f"Bearer {device.token}"}, timeout=60)
            assert answer.status_code == 201, answer.text
            device.client.close()
    wait_for(lambda: small.operator.federation(made["good"].id).state == "finished", why="the good one waits")
    poisoned = wait_for(
        lambda: (found := small.operator.federation(made["poisoned"].id)).state == "paused" and found,
        why="it is tried for ever",
    )
    assert poisoned.error == "out_of_memory"
    job = next(job for job in small.operator.jobs(federation=poisoned.id).items if job.kind == "round")
    assert (job.state, job.error, job.attempt) == ("failed", "out_of_memory", 3)
    shown = small.operator.rounds(poisoned.id).items[0]
    assert shown.state == "failed" and (shown.reason or "").startswith("out_of_memory: "), shown
    assert [job.attempt for job in small.operator.jobs(federation=made["good"].id).items] == [1, 1]
