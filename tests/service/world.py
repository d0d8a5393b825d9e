"""A service with an operator, and federations that are driven by hand where a worker would do it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
from sqlalchemy import func, select

from contract.tensors import write_file
from contract.wire.problems import TYPE_PREFIX
from service.app import create_app
from service.config import Settings
from service.infra.blobs import Blobs
from service.infra.sums import sums_of
from service.operations.access.tokens import ensure_operator_token
from service.operations.ledger.unit import Store
from service.operations.progress import jobs
from service.operations.steer import publishing, retention
from service.operations.store.outcome import Outcome
from service.persistence.tables import JobRow, UpdateRow

from .forge import Arrays, Forge
from .site import Site

TASK = {"kind": "classification", "num_classes": 3, "input": {"shape": [2], "dtype": "float32"}}


def refused(response: httpx.Response) -> tuple[int, str]:
    """Return status and kind of a problem."""
    return response.status_code, response.json()["type"].removeprefix(TYPE_PREFIX)


@dataclass
class Device:
    """An enrolled client."""

    id: str
    name: str
    token: str


@dataclass
class Fed:
    """A federation under test."""

    id: str
    join_token: str
    devices: dict[str, Device] = field(default_factory=dict)


def _object(found: Any) -> dict[str, Any]:
    assert isinstance(found, dict), found
    return found


class World:
    """One service with an operator."""

    def __init__(self, settings: Settings):
        self.settings, self.forge = settings, Forge()
        self.operator = ensure_operator_token(settings) or ""
        self.app = create_app(settings)
        self.site = Site(self.app)
        self.services = self.app.state.services
        self.store: Store = self.services.store
        self.blobs: Blobs = self.services.blobs
        self._names = 0

    def close(self) -> None:
        """End the service."""
        self.site.close()

    def op(self, method: str, url: str, **options: Any) -> httpx.Response:
        """Make a request as the operator."""
        return self.site.request(method, url, token=self.operator, **options)

    def ok(self, method: str, url: str, **options: Any) -> Any:
        """Make a request as the operator that must succeed; return its JSON."""
        response = self.op(method, url, **options)
        assert response.is_success, response.text
        return response.json() if response.content else None

    def fresh_name(self, stem: str = "fed") -> str:
        """Return a name that this service has not heard."""
        self._names += 1
        return f"{stem}-{self._names}"

    def body(self, **changes: Any) -> dict[str, Any]:
        """Return what creates a federation."""
        return {
            "name": self.fresh_name(),
            "task": TASK,
            "prototypes": [{"architecture": "mlp", "options": {"hidden": [4]}}],
            "recipe": {"name": "fedavg"},
            "rounds": {"total": 2},
            **changes,
        }

    def create(self, **changes: Any) -> Fed:
        """Create a federation."""
        made = self.ok("POST", "/v1/federations", json=self.body(**changes))
        return Fed(made["id"], made["join_token"])

    def enrol(self, fed: Fed, name: str, **changes: Any) -> Device:
        """Enrol a device."""
        response = self.site.request(
            "POST",
            f"/v1/federations/{fed.id}/clients",
            token=fed.join_token,
            json={"name": name, "num_samples": 10, **changes},
        )
        assert response.status_code == 201, response.text
        made = response.json()
        fed.devices[name] = Device(made["client_id"], name, made["token"])
        return fed.devices[name]

    def running(self, names: Iterable[str] = ("a", "b"), **changes: Any) -> Fed:
        """Return a federation whose first round collects updates."""
        names = list(names)
        rounds = {"total": 2, "min_clients": max(1, len(names)), **changes.pop("rounds", {})}
        fed = self.create(rounds=rounds, **changes)
        for name in names:
            self.enrol(fed, name)
        self.ok("POST", f"/v1/federations/{fed.id}/start")
        self.finish(self.claim(), {"main": self.forge.arrays()})
        return fed

    def collecting(self, names: Iterable[str] = ("a", "b"), **changes: Any) -> Fed:
        """Return a FedGO federation that waits for its clients' discriminators."""
        names = list(names)
        data = self.dataset()
        rounds = {"total": 2, "min_clients": max(1, len(names)), **changes.pop("rounds", {})}
        plan = {"architecture": "disc-mlp", "options": {"hidden": [4]}}
        recipe = {"name": "fedgo-small", "options": {"discriminators": {"plan": plan}}}
        fed = self.create(recipe=recipe, datasets={"unlabeled": data["id"]}, rounds=rounds, **changes)
        for name in names:
            self.enrol(fed, name)
        self.ok("POST", f"/v1/federations/{fed.id}/start")
        self.finish(self.claim(), {"main": self.forge.arrays()})
        files = {"generator": self.forge.arrays(1), "discriminator": self.forge.arrays(2)}
        self.finish(self.claim(), files, {"input_range": [-1.0, 1.0]})
        return fed

    def dataset(self, **changes: Any) -> dict[str, Any]:
        """Register a data set that fits `TASK`."""
        arrays = {"inputs": np.zeros((5, 2), np.float32), **changes}
        name = self.fresh_name("data")
        return _object(self.ok("POST", f"/v1/datasets?name={name}", body=self.forge.pack(arrays)))

    def show(self, fed: Fed) -> dict[str, Any]:
        """Return the federation."""
        return _object(self.ok("GET", f"/v1/federations/{fed.id}"))

    def round(self, fed: Fed, index: int = 0) -> dict[str, Any]:
        """Return a round in full: the newest, or the one of an index."""
        rounds = self.ok("GET", f"/v1/federations/{fed.id}/rounds")["items"]
        return _object(self.ok("GET", f"/v1/rounds/{rounds[index - 1]['id']}"))

    def assignment(self, device: Device, wait: float = 0) -> dict[str, Any]:
        """Return what a device is told to do."""
        response = self.site.request("GET", f"/v1/assignment?wait={wait}", token=device.token)
        assert response.status_code == 200, response.text
        return _object(response.json())

    def update(self, fed: Fed, seed: int = 1, **changes: Any) -> bytes:
        """Return a sound update of the newest round; `None` leaves an entry of its metadata out."""
        base = self.round(fed)["base_models"]["main"]
        metadata = {"num_samples": "10", "base_model": base, **changes}
        return self.forge.pack(self.forge.arrays(seed), {k: v for k, v in metadata.items() if v is not None})

    def push(self, fed: Fed, name: str, body: Any = None, **options: Any) -> httpx.Response:
        """Upload an update to the newest round as a device."""
        url = options.pop("url", None) or f"/v1/rounds/{self.round(fed)['id']}/update"
        body = self.update(fed) if body is None else body
        return self.site.request("PUT", url, token=fed.devices[name].token, body=body, **options)

    # ------------------------------------------------------------------------------------- as a worker would
    def claim(self, worker: str = "wrk_1", lease: float = 30.0) -> JobRow:
        """Take the oldest job that is due."""
        with self.store.write() as session:
            job = jobs.claim(session, worker, "cpu", lease)
            assert job is not None, "no job is due"
            return job

    def _stored(self, arrays: Arrays) -> tuple[str, int]:
        path = self.blobs.scratch.temp()
        write_file(path, arrays)
        sums = sums_of(path)
        digest, size = sums.digest, sums.size
        self.blobs.store.keep(path, digest)
        return digest, size

    def finish(
        self,
        job: JobRow,
        files: dict[str, Arrays],
        metrics: dict[str, Any] | None = None,
        state: dict[str, Arrays] | None = None,
    ) -> None:
        """Publish a job's result."""
        stored = {name: self._stored(arrays) for name, arrays in files.items()}
        kept = None if state is None else {name: self._stored(arrays) for name, arrays in state.items()}
        with self.store.write() as session:
            outcome = Outcome(stored, metrics or {}, state=kept)
            publishing.publish(session, job.id, job.fence, outcome)
        with self.store.write() as session:
            retention.tidy(session, job.federation_id, self.settings.retention)

    def updates(self) -> int:
        """Return the number of updates there are."""
        with self.store.read() as session:
            return session.scalar(select(func.count()).select_from(UpdateRow)) or 0

    def files(self) -> set[str]:
        """Return every file below the blob folder."""
        root = self.settings.resolved_blob_dir
        return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
