"""Tokens with real processes: a device killed at every step of a rotation; join tokens raced over two API processes."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from client_sdk.state import StateFolder
from contract.wire.federations import FederationCreate
from tools.deployment import ROOT, Deployment, federation_request, running

DEVICE = """
import json, os, signal, sys, tempfile, traceback
from datetime import UTC, datetime
from pathlib import Path
from client_sdk import identity
from client_sdk.client import Client
from client_sdk.state import StateFolder

url, place, federation, join_token = sys.argv[1:]

def fall():
    os.kill(os.getpid(), signal.SIGKILL)

def fall_instead(*ignored):
    fall()

rotate, remember = Client.rotate_token, StateFolder.remember

def rotate_and_fall(client):
    rotate(client)
    fall()

def remember_and_fall(folder, known):
    remember(folder, known)
    fall()

def run(step):
    folder, client = StateFolder(Path(place)), Client(url, retries=0)
    with folder.locked():
        application = identity.Application(federation, num_samples=3, join_token=join_token, name="device")
        identity.establish(client, folder, application)
        if step != "use":
            folder.remember(folder.identity().model_copy(update={"token_renew_at": datetime.now(UTC)}))
            if step == "before it asks":
                Client.rotate_token = fall_instead
            elif step == "after the answer":
                Client.rotate_token = rotate_and_fall
            elif step == "while it stores":
                os.replace = fall_instead
            elif step == "after it stored":
                StateFolder.remember = remember_and_fall
            assert identity.renew(client, folder)
            if step == "before the first use":
                fall()
        assert client.own_token().role == "device"

def start(step, said):
    pid = os.fork()
    if pid:
        return pid
    os.dup2(said.fileno(), sys.stderr.fileno())
    code = 0
    try:
        run(step)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    os._exit(code)

for line in sys.stdin:
    steps = json.loads(line)
    files = [tempfile.TemporaryFile("w+") for _ in steps]
    pids = [start(*pair) for pair in zip(steps, files)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    for file in files:
        file.seek(0)
    print(json.dumps([codes, [file.read() for file in files]]), flush=True)
"""
STEPS = ["before it asks", "after the answer", "while it stores", "after it stored", "before the first use", "never"]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    made = Deployment(tmp_path_factory.mktemp("api") / "home")
    with running(made, worker=False):
        yield made


def _create(deployment: Deployment, name: str, **changes: Any) -> Any:
    request = federation_request(name, {"name": "fedavg"}, datasets={}, **changes)
    return deployment.operator.create_federation(FederationCreate.model_validate(request))


def _status(deployment: Deployment, token: str) -> int:
    return httpx.get(f"{deployment.url}/v1/token", headers={"Authorization": f"Bearer {token}"}).status_code


@contextmanager
def _device(deployment: Deployment, made: Any, folder: Path) -> Iterator[Callable[..., Any]]:
    """What starts a process a step, all at once, and tells how each ended and what it said.

    They are forked from one that has imported the SDK: torch would have each begin with seconds of imports.
    """
    command = [sys.executable, "-c", DEVICE, deployment.url, str(folder), made.id, made.join_token]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdin is not None and first.stdout is not None

        def start(*steps: str) -> Any:
            print(json.dumps(steps), file=first.stdin, flush=True)
            return json.loads(first.stdout.readline())  # type: ignore[union-attr]

        yield start


@pytest.mark.slow
def test_a_device_that_is_killed_during_a_rotation_is_never_locked_out(api: Deployment, tmp_path: Path) -> None:
    """And once it has used its newest token, no other one is good."""
    made, folder, held = _create(api, "rotated"), tmp_path / "device", set[str]()
    with _device(api, made, folder) as start:

        def run(step: str) -> None:
            [code], said = start(step)
            assert code == (0 if step in ("use", "never") else -signal.SIGKILL), said
            known = StateFolder(folder).identity()
            assert known is not None
            held.add(known.token or "")

        run("use")
        for step in STEPS:
            run(step)
            run("use")
            assert [_status(api, token) for token in held].count(200) == 1, step
    assert len(held) >= 4
    assert len(api.operator.clients(made.id).items) == 1


def test_of_two_processes_with_one_folder_one_replaces_the_token(api: Deployment, tmp_path: Path) -> None:
    made, folder = _create(api, "raced"), tmp_path / "device"
    with _device(api, made, folder) as start:
        assert start("use")[0] == [0]
        codes, said = start(*["never"] * 4)
    assert 0 in codes
    for code, text in zip(codes, said, strict=True):
        assert code == 0 or "is in use by another process" in text, text
    known = StateFolder(folder).identity()
    assert known is not None
    assert _status(api, known.token or "") == 200


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_join_tokens_raced_over_two_api_processes(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Fifty at once on a token with three uses; fifty at once while the token is replaced."""
    env = {} if kind == "sqlite" else {"POTSTILL_DATABASE_URL": request.getfixturevalue("database")}
    replicas = [Deployment(tmp_path / "home", **env) for _ in range(2)]
    one, other = replicas
    other.home = tmp_path / "other"  # for its log
    other.home.mkdir()
    try:
        for replica in replicas:
            replica.start_api()

        def join(made: Any, number: int) -> int:
            address = f"{replicas[number % 2].url}/v1/federations/{made.id}/clients"
            headers, body = {"Authorization": f"Bearer {made.join_token}"}, {"name": f"d{number}", "num_samples": 5}
            return httpx.post(address, headers=headers, json=body, timeout=60).status_code

        def at_once(made: Any) -> "Counter[int]":
            with ThreadPoolExecutor(50) as pool:
                return Counter(pool.map(lambda number: join(made, number), range(50)))

        made = _create(one, "three", join={"max_uses": 3})
        assert at_once(made) == {201: 3, 403: 47}
        shown = one.operator.federation(made.id)
        assert (shown.clients, shown.join.uses if shown.join else None) == (3, 3)
        made = _create(one, "replaced", join={"max_uses": 50})
        with ThreadPoolExecutor(1) as pool:
            replacing = pool.submit(one.operator.rotate_join_token, made.id)
            found = at_once(made)
            replacing.result(60)
        assert set(found) <= {201, 401}
        shown = one.operator.federation(made.id)
        assert (shown.clients, shown.join.uses if shown.join else None) == (found[201], 0)
        assert join(made, 99) == 401
    finally:
        for replica in replicas:
            replica.close()
