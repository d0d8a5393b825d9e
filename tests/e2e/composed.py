"""The services of docker-compose.yml as processes: the commands of the Dockerfile, the settings and the proxy's
configuration, and secrets by file. What they reach by name is on this machine.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import uuid
from functools import partial
from pathlib import Path

import httpx
import psutil
import pytest
import yaml

from client_sdk import OperatorClient
from tests.bucket_server import KEYS
from tools.deployment import ROOT, Deployment, wait_for

COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES = COMPOSE["services"]
REDIS = os.environ.get("POTSTILL_TEST_REDIS", "redis://127.0.0.1:6379/9")


def command_of(target: str) -> list[str]:
    """Return the CMD of a target of the Dockerfile."""
    stage = (ROOT / "Dockerfile").read_text().split(f" AS {target}\n")[1].split("\nFROM ")[0]
    found = re.search(r"^CMD (\[.*?\])", stage.replace("\\\n", ""), re.MULTILINE | re.DOTALL)
    assert found
    return list(json.loads(found[1]))


def empty_redis() -> None:
    """Empty the Redis of the tests; skip where there is none."""
    redis = pytest.importorskip("redis")
    try:
        with redis.Redis.from_url(REDIS) as link:
            link.flushdb()
    except redis.exceptions.ConnectionError as error:
        if "POTSTILL_TEST_DISTRIBUTED" in os.environ:
            raise
        pytest.skip(f"NO REDIS at {REDIS}, the distributed mode is not tested: {error}")


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class Composed(Deployment):
    """A distributed installation.

    Args:
        home: folder of logs and of each process's own folder.
        secrets: what deploy/secrets.sh made.
        store: address of the S3 store.
        database: address of an empty database.
        more: settings on top of the compose file's.
    """

    def __init__(self, home: Path, secrets: Path, store: str, database: str, **more: str):
        (secrets / "database_url").write_text(f"{database}\n")
        env = {
            name: str(value).replace("/run/secrets/", f"{secrets}/")
            for name, value in SERVICES["api"]["environment"].items()
        }
        env |= {"POTSTILL_BROKER_URL": REDIS, "POTSTILL_S3_ENDPOINT": store, **more}
        if "POTSTILL_TEST_S3" in os.environ:  # a store that has its own keys, and keeps what earlier runs left
            env["POTSTILL_BLOB_URL"] = f"s3://potstill-{uuid.uuid4().hex}"
            for name, key in KEYS.items():
                (secrets / name).write_text(f"{key}\n")
        env["POTSTILL_TRUSTED_PROXIES"] += ",127.0.0.1"  # the network of these containers is this machine
        self.blob_url = env["POTSTILL_BLOB_URL"]
        self.secrets, self.ports = secrets, [free_port() for _ in range(SERVICES["api"]["deploy"]["replicas"])]
        with pytest.MonkeyPatch.context() as patch:
            for name, value in env.items():
                patch.setenv(name, value)
            super().__init__(
                home,
                0,
                {"service.infra.bucket.TIMEOUT_SECONDS": 5.0},
                **{name: value for name, value in env.items() if not name.endswith("_FILE")},
            )
        self.env |= env

    def _run(self, name: str, home: str, *command: str, **env: str) -> None:
        """Start a process with a folder of its own: no disk in common."""
        before, self.env = self.env, self.env | {"POTSTILL_HOME": str(self.home / home), **env}
        self._start(name, *command)
        self.env = before

    def migrate(self) -> None:
        """Do what the service `migrate` does."""
        command = [sys.executable, "-m", *SERVICES["migrate"]["command"]]
        subprocess.run(command, env=self.env, cwd=ROOT, check=True, capture_output=True)

    def start_replica(self, number: int) -> None:
        """Start an API replica."""
        _, _, *command = command_of("api")
        command[command.index("--host") + 1] = "127.0.0.1"
        command[command.index("--port") + 1] = str(self.ports[number])
        self._run(f"api-{number}", f"api-{number}", *command)

    def start_replicas(self) -> None:
        """Start as many API replicas as the compose file says, and wait for them."""
        for number in range(len(self.ports)):
            self.start_replica(number)
        for number in range(len(self.ports)):
            wait_for(partial(self.replica_answers, number), 90, f"replica {number} does not answer")

    def replica(self, number: int) -> str:
        """Return a replica's own address."""
        return f"http://127.0.0.1:{self.ports[number]}"

    def replica_answers(self, number: int) -> bool:
        """Whether a replica is up."""
        try:
            return httpx.get(f"{self.replica(number)}/healthz", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False

    def start_proxy(self) -> None:
        """Put nginx in front of the replicas; from here on `url` and `operator` go through it, over TLS."""
        port = free_port()
        text = (ROOT / "deploy/nginx.conf").read_text().replace("/tmp/", f"{self.home}/")
        replicas = " ".join(f"server 127.0.0.1:{each} max_fails=0;" for each in self.ports)
        text = text.replace("/run/secrets/", f"{self.secrets}/").replace("server api:8080 max_fails=0;", replicas)
        text = text.replace("listen 8443 ssl", f"listen 127.0.0.1:{port} ssl")
        path = self.home / "nginx.conf"
        path.write_text("daemon off;\n" + text)
        binary = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
        if binary is None:
            pytest.skip("NO NGINX, the proxy of the distributed mode is not tested")
        subprocess.run([binary, "-t", "-c", path], check=True, capture_output=True)
        with open(self.home / "proxy.log", "ab") as log:
            self._processes["proxy"] = subprocess.Popen(
                [binary, "-c", path], stdout=log, stderr=log, start_new_session=True
            )
        self.operator.close()
        self.url = f"https://localhost:{port}"
        self.operator = OperatorClient(self.url, self.token, ca_file=self.secrets / "tls_certificate")
        wait_for(self._proxied, 90, "the proxy does not answer")

    def _proxied(self) -> bool:
        try:
            return bool(self.operator.health())
        except Exception:  # noqa: BLE001 - not yet
            return False

    def start_queue_worker(self, queue: str) -> None:
        """Start a worker of one queue."""
        _, _, *command = command_of("worker")
        self._run(f"worker-{queue}", f"worker-{queue}", *command, POTSTILL_QUEUES=queue)

    def log(self, name: str) -> str:
        """Return a process's log; `worker` is the one of networks."""
        return super().log("worker-gpu" if name == "worker" else name)

    def who_calls(self, port: int) -> str | None:
        """Return the process that has this local port."""
        for name, process in self._processes.items():
            for each in (psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)):
                if any(link.laddr.port == port for link in each.net_connections("tcp")):
                    return name
        return None
