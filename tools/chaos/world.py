"""A whole installation whose parts can be killed one by one, and what must be true of it afterwards."""

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError

from client_sdk.errors import PotstillError
from contract.tensors import write_file
from contract.wire.federations import FederationCreate
from service.infra.blob_store import open_blobs
from service.operations.ledger.garbage import collect, named
from service.persistence.engine import Database
from service.persistence.tables import JobRow, ModelRow, RoundRow, UpdateRow, WorkerRow
from tools.chaos import buffers
from tools.chaos.crowd import Crowd, Devices
from tools.chaos.reading import reading
from tools.chaos.servers import Postgres, Redis
from tools.deployment import JOBS, Deployment, add_server_data, federation_request, images, wait_for

RECIPES: dict[str, dict[str, Any]] = {
    "fedavg": {"name": "fedavg"},
    "feddf": {"name": "feddf", "options": {"schedule": {"steps": 900, "lr": "constant"}}},
    "scaffold": {"name": "scaffold"},
    "fedgo": {
        "name": "fedgo-small",
        "options": {
            "schedule": {"steps": 250},
            "generator": {"steps": 60},
            "plan": {"epochs": 2, "batch_size": 16},
            "link": "sigmoid",
        },
    },
    "shards": {"name": "feddf", "options": {"schedule": {"steps": 60}}},
    "buffered": {"name": "fedavg"},
}
UNLIKE = frozenset({"buffered"})
"""Whose models are a matter of haste: no two federations of these are equal."""
CONSTANTS = {
    "worker.checkpoints.EVERY_SECONDS": 0.3,
    f"{JOBS}.MAX_ATTEMPTS": 100,
    f"{JOBS}.RETRY_SECONDS": 0.1,
    "service.domain.sharing.MOST": 4,
}
SHARD_SECONDS = "0.001"
"""Every round that has been measured is shared, as soon as there is somebody to share it with."""
LARGE = 30_000
"""Samples of the set that is labelled in shards which take long enough to be hit."""


@dataclass
class Outcome:
    """What became of one federation."""

    recipe: str
    digests: list[tuple[Any, ...]]
    acknowledged: int
    attempts: int
    faults: list[str] = field(default_factory=list)
    shards: int = 0
    again: int = 0
    """Attempts of shards beyond the first."""


class World:
    """API, worker, broker and database: 'embedded' in one folder, or 'distributed' over PostgreSQL and Redis.

    Args:
        folder: everything is in here.
        mode: which of the two.
        rounds: of a federation that only averages; one that distils has two.
    """

    def __init__(self, folder: Path, mode: str, rounds: int = 4):
        self.mode, self.folder, self.closed, self.rounds = mode, folder, False, rounds
        self.redis = self.postgres = None
        env = {"POTSTILL_LEASE_SECONDS": "2", "POTSTILL_LABELS_SHARD_SECONDS": SHARD_SECONDS}
        if mode == "distributed":
            self.redis, self.postgres = Redis(), Postgres()
            self.redis.start()
            self.postgres.start()
            env |= {"POTSTILL_DATABASE_URL": self.postgres.url, "POTSTILL_BROKER_URL": self.redis.url}
            env |= {"POTSTILL_SECRET": "a secret of at least sixteen characters"}
        self.deployment = Deployment(folder / "home", 0, CONSTANTS, **env)
        self.url = self.deployment.url
        self.workers = ["worker"]
        self.deployment.start_api()
        self.deployment.start_worker()
        add_server_data(self.deployment)
        large = folder / "large.safetensors"
        write_file(large, {"inputs": np.ascontiguousarray(images(97, LARGE)[0])})
        self.deployment.operator.add_dataset("large", large)
        self.hit = ""
        self.kinds: dict[str, Callable[[random.Random], bool]] = {
            "api": self._kill_api,
            "worker": self._kill_worker,
            "child": self._kill_child,
            "shard": self._kill_shard,
            "broker": self._kill_broker,
            "blob": self._harm_blob,
        }
        self.harmed = 0
        if self.postgres is not None:
            self.kinds["database"] = self._kill_database

    # ------------------------------------------------------------------------------------------------------ killing
    def _kill_api(self, _: random.Random) -> bool:
        self.deployment.kill("api")
        self.deployment.start_api()
        return True

    def reinforce(self) -> None:
        """Start another worker: rounds that were one worker's are shared from now on."""
        self.workers.append("other")
        self.deployment.start_worker("other")

    def _kill_worker(self, rng: random.Random) -> bool:
        name = rng.choice(self.workers)
        self.hit = self._held_by(name)
        self.deployment.kill(name)
        self.deployment.start_worker(name)
        return True

    def _kill_child(self, rng: random.Random) -> bool:
        """Kill a process that computes, if there is one."""
        return any(self._kill_child_of(name) for name in rng.sample(self.workers, len(self.workers)))

    def _kill_child_of(self, name: str) -> bool:
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self.deployment.pid(name)).children(recursive=True):
                if "worker.child" in " ".join(process.cmdline()):
                    self.hit = self._held_by(name)
                    process.kill()
                    return True
        return False

    def _kill_shard(self, rng: random.Random) -> bool:
        """Kill a worker, or its computing process, that makes a shard of labels, if there is one."""
        for name in rng.sample(self.workers, len(self.workers)):
            if self._held_by(name) == "labels":
                if rng.random() < 0.5 and self._kill_child_of(name):
                    return True
                self.hit = "labels"
                self.deployment.kill(name)
                self.deployment.start_worker(name)
                return True
        return False

    def _held_by(self, name: str) -> str:
        """Return what kind of job a worker holds, as far as the database can be asked."""
        with contextlib.suppress(SQLAlchemyError), reading(self.deployment) as session:
            held = select(JobRow.kind).join(WorkerRow, WorkerRow.id == JobRow.worker_id)
            mine = held.where(JobRow.state == "running", WorkerRow.pid == self.deployment.pid(name))
            return session.scalars(mine).first() or ""
        return ""

    def _kill_broker(self, rng: random.Random) -> bool:
        """Kill Redis, which forgets everything; or wipe the queue's folder."""
        if self.redis is None:
            shutil.rmtree(self.deployment.home / "queue", ignore_errors=True)
            return True
        self.redis.kill()
        time.sleep(rng.uniform(0, 1))
        self.redis.start()
        return True

    def _kill_database(self, rng: random.Random) -> bool:
        """SIGKILL or an immediate shutdown: either way it recovers from its log."""
        assert self.postgres is not None
        self.postgres.kill(rng.choice([signal.SIGKILL, signal.SIGQUIT]))
        time.sleep(rng.uniform(0, 1))
        self.postgres.start()
        return True

    def _harm_blob(self, _: random.Random) -> bool:
        """Turn one bit of an update that waits to be fused, as a disk would; it must be found and asked for again."""
        with reading(self.deployment) as session:
            waiting = select(UpdateRow.digest).join(RoundRow, RoundRow.id == UpdateRow.round_id)
            found = session.scalars(waiting.where(RoundRow.state == "collecting").order_by(UpdateRow.id.desc())).first()
        name = "" if found is None else found.removeprefix("sha256-")
        path = self.deployment.settings.resolved_blob_dir / name[:2] / name
        if not path.is_file():
            return False
        with open(path, "r+b") as file:
            file.seek(-1, os.SEEK_END)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_END)
            file.write(bytes([byte ^ 1]))
        self.harmed += 1
        return True

    def mend(self) -> None:
        """Start what ended by itself, as a supervisor would; a program that cannot reach its database may do so."""
        if self.deployment.ended("api"):
            self.deployment.start_api()
        for name in self.workers:
            if self.deployment.ended(name):
                self.deployment.start_worker(name)

    # -------------------------------------------------------------------------------------------------- federations
    def begin(self, recipe: str, label: str) -> tuple[Any, Crowd]:
        rounds = {"total": 2, "min_clients": 3, "min_updates": 3, "deadline_seconds": 3600}
        request = federation_request(label, RECIPES[recipe], rounds=rounds)
        if recipe == "shards":
            request["datasets"] = {"unlabeled": "large"}
            rounds = request["rounds"] = rounds | {"total": 3}
        if recipe in ("fedavg", "scaffold", "buffered"):
            request["datasets"] = {}
            request["local"] = {"optimizer": {"kind": "sgd", "lr": 0.05}, "epochs": 2, "batch_size": 16}
            request["rounds"] = rounds | {"total": self.rounds}
        if recipe == "scaffold":
            request["local"]["objective"] = {"kind": "scaffold"}
        if recipe == "buffered":
            waits = ("min_updates", "deadline_seconds")
            rounds = {name: value for name, value in rounds.items() if name not in waits}
            request["rounds"] = rounds | buffers.PLAN | {"total": 2 * self.rounds}
            request["retention"] = {"updates": "all"}
        operator = self.deployment.operator
        created = operator.create_federation(FederationCreate.model_validate(request))
        operator.start_federation(created.id)
        return created, Devices(self.url, created, self.folder / "devices" / label)

    def state(self, id_: str) -> str:
        try:
            return self.deployment.operator.federation(id_).state
        except (PotstillError, httpx.HTTPError):
            return "unknown"

    def conclude(self, recipe: str, created: Any, devices: Crowd, seconds: float) -> Outcome:
        """Wait for the end and look at everything that must be true."""
        id_, operator = created.id, self.deployment.operator
        faults: list[str] = []
        try:
            wait_for(lambda: self._ends(id_), seconds, why="the federation does not end")
        except AssertionError as error:
            open_ = [job.model_dump(mode="json") for job in operator.jobs(federation=id_).items if job.state != "done"]
            faults.append(f"{error}: {self.state(id_)}; jobs {json.dumps(open_)}")
        devices.join(60)
        faults += devices.faults
        if self.state(id_) != "finished":
            faults.append(f"it is {self.state(id_)}: {operator.federation(id_).detail}")
        faults += self.count(id_, recipe, devices)
        jobs = operator.jobs(federation=id_).items
        healed = {"blob_damaged"} if self.harmed else set[str]()
        open_jobs = [job for job in jobs if job.state != "done" and job.error not in healed]
        faults += [f"job {job.id} ({job.kind}) is {job.state}: {job.error}" for job in open_jobs]
        models = operator.models(federation=id_, limit=100).items
        faults += [fault for model in models if (fault := self.whole(model)) is not None]
        digests = sorted((model.role, model.round or 0, model.prototype or "", model.digest) for model in models)
        shards = [job.attempt for job in jobs if job.kind == "labels"]
        taken, attempts = sum(devices.taken.values()), sum(job.attempt for job in jobs)
        return Outcome(recipe, digests, taken, attempts, faults, len(shards), sum(shards) - len(shards))

    def _ends(self, id_: str) -> bool:
        self.mend()
        return self.state(id_) in ("finished", "failed", "cancelled")

    def count(self, id_: str, recipe: str, devices: Any) -> list[str]:
        """Every acknowledged update was counted exactly once, and nothing else was."""
        if recipe in UNLIKE:
            return buffers.count(self.deployment, id_, devices)
        operator, faults = self.deployment.operator, []
        counted: Counter[tuple[str, str]] = Counter()
        for each in operator.rounds(id_).items:
            shown = operator.round(each.id)
            weights = [person.weight for person in shown.participants if person.answered_at is not None]
            counted.update((each.id, person.name) for person in shown.participants if person.answered_at is not None)
            if shown.state != "published" or None in weights or abs(sum(w or 0 for w in weights) - 1) > 1e-9:
                faults.append(f"round {each.index} is {shown.state} with weights {weights}")
        with reading(self.deployment) as session:
            rows = session.execute(
                select(UpdateRow.round_id, UpdateRow.client_id, func.count())
                .where(UpdateRow.round_id.in_([round_ for round_, _ in counted]))
                .group_by(UpdateRow.round_id, UpdateRow.client_id)
            )
            faults += [f"{count} updates of one device in a round" for _, _, count in rows if count != 1]
        taken = Counter(set(devices.taken)) if self.harmed else devices.taken  # what was lost is acknowledged again
        if counted != taken:
            faults.append(f"acknowledged {dict(taken)} but counted {dict(counted)}")
        return faults

    def whole(self, model: Any) -> str | None:
        """Read a model through the API; it must be the bytes that its digest names."""
        found = hashlib.sha256()
        headers = {"Authorization": f"Bearer {self.deployment.token}"}
        with httpx.stream("GET", f"{self.url}{model.url}", headers=headers, timeout=30) as answer:
            for block in answer.iter_bytes():
                found.update(block)
        same = answer.status_code == 200 and f"sha256-{found.hexdigest()}" == model.digest
        return None if same else f"model {model.id}: HTTP {answer.status_code}, its bytes are not {model.digest}"

    # ---------------------------------------------------------------------------------------------------- afterwards
    def resumed(self) -> int:
        """Return how many attempts went on from a state of an earlier one."""
        log = "".join(self.deployment.log(name) for name in self.workers)
        return log.count("going on from distil") + log.count("going on from generator")

    def close(self) -> list[str]:
        """Stop everything; return what was left behind: files, rows, processes."""
        faults, self.closed = [], True
        with reading(self.deployment) as session:
            open_jobs = session.scalars(select(JobRow.id).where(JobRow.state.in_(("queued", "running")))).all()
            faults += [f"job {id_} was left behind" for id_ in open_jobs]
            models = set(session.scalars(select(ModelRow.digest)))
        self.deployment.close()
        settings = self.deployment.settings
        blobs, database = open_blobs(settings), Database(settings)
        blobs.sweep(0.0, set())
        collect(database, blobs.store, 0.0)
        root = settings.resolved_blob_dir
        left = {f"sha256-{path.name}" for path in root.rglob("*") if path.is_file()}
        with database.read() as session:
            unnamed = left - named(session, left)
        database.close()
        faults += [f"model {digest} has no file" for digest in models - left]
        faults += [f"nothing names the file {digest}" for digest in unnamed]
        for server in (self.redis, self.postgres):
            if server is not None:
                server.close()
        return faults + _alive(self.deployment.home)


def _alive(home: Path) -> list[str]:
    """Return processes of this installation that still run."""
    end = time.monotonic() + 10
    while True:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.pid != os.getpid() and process.environ().get("POTSTILL_HOME") == str(home):
                    found.append(f"process {process.pid} still runs: {' '.join(process.cmdline())[:100]}")
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.1)
