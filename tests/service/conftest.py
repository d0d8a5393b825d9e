"""A service in this process: a migrated database (copied, not migrated again), the app, an operator, and federations
that are driven by hand where a worker would do it.
"""

import asyncio
import json
import os
import shutil
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import httpx
import numpy as np
import psycopg
import pytest
from sqlalchemy import create_engine, func, select, text

from contract.tensors import DTYPES, dtype_name, write_file
from service.app import create_app
from service.config import Settings
from service.infra.blob_folder import BlobFolder
from service.infra.blobs import Blobs, digest_of
from service.operations import jobs, publishing
from service.operations.tokens import ensure_operator_token
from service.operations.unit import Store
from service.persistence import migrate
from service.persistence.engine import Database
from service.persistence.tables import Base, JobRow, UpdateRow
from tests.bucket_server import BucketServer, serve
from tests.databases import Databases, databases

Arrays = dict[str, np.ndarray]
TASK = {"kind": "classification", "num_classes": 3, "input": {"shape": [2], "dtype": "float32"}}
SPECS: dict[str, tuple[str, tuple[int, ...]]] = {
    "conv.weight": ("F32", (4, 1, 3, 3)),
    "bn.weight": ("F32", (4,)),
    "bn.running_mean": ("F32", (4,)),
    "bn.running_var": ("F32", (4,)),
    "bn.num_batches_tracked": ("I64", ()),
    "fc.weight": ("F32", (3, 4)),
    "fc.bias": ("F32", (3,)),
}


# ------------------------------------------------------------------------------------------- files that may lie
class Forge:
    """Writes safetensors files with code of its own, so that they can be wrong in every way."""

    specs = SPECS

    @staticmethod
    def arrays(seed: int = 0) -> Arrays:
        """Return plausible weights."""
        numbers = np.random.default_rng(seed)
        made = {}
        for name, (dtype, shape) in SPECS.items():
            values = numbers.integers(0, 9, shape) if dtype == "I64" else np.abs(numbers.standard_normal(shape)) * 0.1
            made[name] = np.asarray(values, DTYPES[dtype])
        return made

    @staticmethod
    def raw(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
        """Return length prefix + header + data; `length` overrides the claim, bytes go in as they are."""
        head = header if isinstance(header, bytes) else json.dumps(header).encode()
        head += b" " * (-(8 + len(head)) % 8)
        return struct.pack("<Q", len(head) if length is None else length) + head + data

    @staticmethod
    def layout(arrays: Arrays, metadata: dict[str, str] | None = None) -> tuple[dict[str, Any], bytes]:
        """Return the header and the data of a sound file."""
        header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
        data = b""
        for name, array in arrays.items():
            offsets = [len(data), len(data) + array.nbytes]
            header[name] = {"dtype": dtype_name(array), "shape": list(array.shape), "data_offsets": offsets}
            data += array.tobytes()
        return header, data

    def pack(self, arrays: Arrays, metadata: dict[str, str] | None = None) -> bytes:
        """Return a sound file."""
        return self.raw(*self.layout(arrays, metadata))


@pytest.fixture(scope="session")
def forge() -> Forge:
    return Forge()


# ------------------------------------------------------------------------------------------------ the app
class Site:
    """The app, called as a server would call it, from an event loop in a thread of its own."""

    def __init__(self, app: Any):
        self.app = app
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="site")
        self._thread.start()
        self._life = app.router.lifespan_context(app)
        self.call(self._life.__aenter__())

    def call(self, coroutine: Any) -> Any:
        """Run a coroutine in the app's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)

    def close(self) -> None:
        """Shut the app down."""
        self.call(self._life.__aexit__(None, None, None))
        self.call(self.loop.shutdown_default_executor())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def begin(
        self,
        method: str,
        url: str,
        *,
        token: str | None = None,
        json: Any = None,
        body: bytes | Iterable[bytes] = b"",
        headers: dict[str, str] | None = None,
        hang_up: bool = False,
        stall: bool = False,
        fail: bool = False,
        heard: Callable[[bytes], None] = lambda piece: None,
    ) -> "Future[httpx.Response]":
        """Start a request. A body that is not bytes is sent in these chunks without a Content-Length; `hang_up` ends
        the connection after them, `stall` keeps it open and sends no more.
        `heard` is told each piece of the answer as it comes.
        """
        request = httpx.Request(method, "http://site" + url, json=json, headers=headers)
        if token is not None:
            request.headers["Authorization"] = f"Bearer {token}"
        chunks = [request.read()] if json is not None else [body] if isinstance(body, bytes) else list(body)
        if json is None:
            request.headers.pop("Content-Length", None)  # httpx counts the body, which it has not got
            if isinstance(body, bytes) and method not in ("GET", "HEAD"):
                request.headers["Content-Length"] = (headers or {}).get("Content-Length", str(len(body)))
        exchange = self._exchange(request, chunks, hang_up, stall, fail, heard)
        return asyncio.run_coroutine_threadsafe(exchange, self.loop)

    def request(self, method: str, url: str, **options: Any) -> httpx.Response:
        """Make a request and return its answer."""
        return self.begin(method, url, **options).result(30)

    async def _exchange(
        self,
        request: httpx.Request,
        chunks: list[bytes],
        hang_up: bool,
        stall: bool,
        fail: bool,
        heard: Callable[[bytes], None],
    ) -> httpx.Response:
        raw_path, _, query = request.url.raw_path.partition(b"?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": request.method,
            "path": unquote(raw_path.decode()),
            "raw_path": raw_path,
            "root_path": "",
            "scheme": "http",
            "query_string": query,
            "headers": [(key.lower(), value) for key, value in request.headers.raw],
            "client": ("test", 1),
            "server": ("site", 80),
            "state": {},
        }
        left, done = list(chunks), asyncio.Event()
        answer: dict[str, Any] = {"body": b"", "waits": 0}

        async def receive() -> dict[str, Any]:
            if left:
                chunk = left.pop(0)
                return {"type": "http.request", "body": chunk, "more_body": bool(left) or hang_up or stall}
            if not hang_up:
                answer["waits"] += 0 if done.is_set() else 1
                await done.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                answer["status"], answer["headers"] = message["status"], message.get("headers", [])
            else:
                answer["body"] += message.get("body", b"")
                heard(message.get("body", b""))
                if not message.get("more_body"):
                    done.set()

        try:
            await self.app(scope, receive, send)
        except Exception:
            if not fail:
                raise
        response = httpx.Response(answer["status"], headers=answer["headers"], content=answer["body"], request=request)
        response.extensions["waits"] = answer["waits"]  # times that the app waited for more than there was
        return response


# -------------------------------------------------------------------------------------- a service and its federations
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
        recipe = {"name": "fedgo", "options": {"discriminators": {"plan": plan}}}
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
        return self.ok("POST", f"/v1/datasets?name={name}", body=self.forge.pack(arrays))

    def show(self, fed: Fed) -> dict[str, Any]:
        """Return the federation."""
        return self.ok("GET", f"/v1/federations/{fed.id}")

    def round(self, fed: Fed, index: int = 0) -> dict[str, Any]:
        """Return a round in full: the newest, or the one of an index."""
        rounds = self.ok("GET", f"/v1/federations/{fed.id}/rounds")["items"]
        return self.ok("GET", f"/v1/rounds/{rounds[index - 1]['id']}")

    def assignment(self, device: Device, wait: float = 0) -> dict[str, Any]:
        """Return what a device is told to do."""
        response = self.site.request("GET", f"/v1/assignment?wait={wait}", token=device.token)
        assert response.status_code == 200, response.text
        return response.json()

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
        path = self.blobs.temp()
        write_file(path, arrays)
        digest, size = digest_of(path)
        self.blobs.keep(path, digest)
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
            outcome = publishing.Outcome(stored, metrics or {}, state=kept)
            publishing.publish(session, job.id, job.fence, outcome, self.settings.kept, self.settings.max_attempts)

    def updates(self) -> int:
        """Return the number of updates there are."""
        with self.store.read() as session:
            return session.scalar(select(func.count()).select_from(UpdateRow)) or 0

    def files(self) -> set[str]:
        """Return every file below the blob folder."""
        root = self.blobs.root
        return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a migrated SQLite database."""
    home = tmp_path_factory.mktemp("template")
    migrate.upgrade(Settings(home=home, database_url=None))
    return home


class Filled:
    """Databases with tables, copies of a template, when tests run distributed. They are used again, emptied: to drop
    one takes PostgreSQL a checkpoint.
    """

    def __init__(self, databases: Databases):
        self._databases, self._template = databases, databases.create()
        migrate.upgrade(Settings(database_url=databases.url(self._template)))
        self._used: list[str] = []
        self._free: list[str] = []

    def take(self) -> str:
        """Return the address of an empty one."""
        if self._free:
            name = self._free.pop()
            self._empty(name)
        else:
            name = self._databases.create(self._template)
        self._used.append(name)
        return self._databases.url(name)

    def _empty(self, name: str) -> None:
        with psycopg.connect(self._databases.url(name).replace("+psycopg", ""), autocommit=True) as link:
            link.execute("SET session_replication_role = replica")  # rows go in any order
            link.execute(";".join(f"DELETE FROM {table.name}" for table in Base.metadata.sorted_tables))
            link.execute("SELECT setval(oid::regclass, 1, false) FROM pg_class WHERE relkind = 'S'")

    def give_back(self, url: str) -> None:
        """Have one used again."""
        name = url.rpartition("/")[2]
        if name in self._used:
            self._used.remove(name)
            self._free.append(name)

    def give_all_back(self) -> None:
        """Have all used again."""
        self._free += self._used
        self._used.clear()


@pytest.fixture(scope="session")
def filled() -> Iterator[Filled | None]:
    """What makes PostgreSQL databases when the tests run distributed; else None, and SQLite it is."""
    if "POTSTILL_TEST_DISTRIBUTED" not in os.environ:
        yield None
        return
    with databases() as made:
        yield Filled(made)


@pytest.fixture(scope="module", autouse=True)
def _databases_of_a_module(filled: Filled | None) -> Iterator[None]:
    yield
    if filled is not None:
        filled.give_all_back()


SettingsMaker = Callable[..., Settings]


@pytest.fixture(scope="session")
def make_settings(template: Path, tmp_path_factory: pytest.TempPathFactory, filled: Filled | None) -> SettingsMaker:
    """Return a function that makes settings on a fresh folder with a migrated database."""

    def make(**changes: Any) -> Settings:
        home = tmp_path_factory.mktemp("home")
        shutil.copy(template / "potstill.db", home / "potstill.db")
        values = {
            "home": home,
            "database_url": None if filled is None or "database_url" in changes else filled.take(),
            "broker_url": None,
            "blob_dir": None,
            "secret": "a secret of the tests",
            "sweep_seconds": 3600,
            "poll_seconds": 0.05,
            "min_free_bytes": 0,
            "max_upload_bytes": 64 * 1024,
            "threads": 8,
            "rate_burst": 100_000,
            "auth_failures_per_minute": 100_000,
        }
        return Settings(**{**values, **changes})

    return make


@pytest.fixture
def settings(make_settings: SettingsMaker, filled: Filled | None) -> Iterator[Settings]:
    made = make_settings()
    yield made
    if filled is not None:
        filled.give_back(made.resolved_database_url)


@pytest.fixture(scope="session")
def world_of() -> type[World]:
    """What makes a service of some settings; the caller closes it."""
    return World


@pytest.fixture
def world(settings: Settings) -> Iterator[World]:
    """A service of this test's own."""
    made = World(settings)
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared(make_settings: SettingsMaker) -> Iterator[World]:
    """A service that the tests of a module share, for requests that are refused."""
    made = World(make_settings())
    yield made
    made.close()


# ------------------------------------------------------------------------------------------------------ a bucket
@pytest.fixture(scope="session")
def bucket_server() -> Iterator[BucketServer]:
    """An S3 server of this run's own."""
    with serve() as running:
        yield running


# --------------------------------------------------------------------------------------------- both databases
@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A PostgreSQL database of this run's own, with tables."""
    with databases() as made:
        url = made.url(made.create())
        migrate.upgrade(Settings(database_url=url))
        yield url


@pytest.fixture
def postgres(postgres_url: str) -> str:
    """The PostgreSQL database, empty."""
    engine = create_engine(postgres_url)
    with engine.begin() as connection:
        connection.execute(text("TRUNCATE " + ", ".join(table.name for table in Base.metadata.sorted_tables)))
    engine.dispose()
    return postgres_url


@pytest.fixture(params=["sqlite", "postgresql"])
def both(request: pytest.FixtureRequest, make_settings: SettingsMaker) -> Iterator[SimpleNamespace]:
    """Settings and an empty store, once on each database."""
    if request.param == "sqlite":
        settings = make_settings(database_url=None)
    else:
        settings = make_settings(database_url=request.getfixturevalue("postgres"))
    database = Database(settings)
    blobs = BlobFolder(settings.resolved_blob_dir)
    yield SimpleNamespace(settings=settings, database=database, store=Store(database, blobs), blobs=blobs)
    database.close()
