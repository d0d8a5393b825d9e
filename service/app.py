"""The composition root of the API process."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from importlib.resources import files
from types import FrameType
from typing import TYPE_CHECKING, Any

import anyio.to_thread
from fastapi import FastAPI, Request, Response
from fastapi.staticfiles import StaticFiles

from contract import __version__, plugins, traces
from contract.architectures import CATALOGUE
from contract.private import UMASK
from contract.wire.rounds import Job
from service import config
from service.api import problems
from service.api.bodies import Gone
from service.api.concurrency import LimitConcurrency
from service.api.deliveries import Deliveries
from service.api.desk import Desk
from service.api.direct import Direct
from service.api.document import document_of
from service.api.middleware import Frame
from service.api.routes import (
    catalogue,
    datasets,
    devices,
    drafts,
    events,
    federations,
    jobs,
    metrics,
    models,
    networks,
    pages,
    predictions,
    rounds,
    secure,
    session,
    staging,
    status,
    tokens,
    uploads,
)
from service.api.routing import add_routes
from service.api.services import Services
from service.api.source import Answered, answer_again
from service.api.start import CheckedStart
from service.api.telemetry import LEFT, Telemetry
from service.api.together import Together
from service.api.traced import Traced
from service.api.under import Under
from service.domain.errors import StartError
from service.infra.bells import Answering
from service.infra.blob_store import open_blobs
from service.infra.changes import POLL_SECONDS, Changes
from service.infra.concurrency import ConcurrencyLimit
from service.infra.feed import Feed
from service.infra.logs import log_to_stderr
from service.infra.metrics import Gauges, Metrics, State
from service.infra.rates import Rates, Slots
from service.infra.wakeup import Wakeup
from service.operations.ledger import audit
from service.operations.ledger.events import Batch, head, read
from service.operations.ledger.unit import Store
from service.operations.store import traffic
from service.operations.store.workers import running
from service.operations.upkeep.sweep import sweep, tidy
from service.operations.view.federations import versions
from service.operations.view.figures import state
from service.persistence import watch
from service.persistence.engine import Database

if TYPE_CHECKING:
    from service.infra.otlp import Sending

log = logging.getLogger("service")
SWEEP_SECONDS = 1.0
"""How often deadlines and lost wake-ups are looked for."""
_TIDY_SECONDS = 600.0
TRAFFIC_SECONDS = 1.0
"""How often counted bytes are written: a process that is killed loses no more of them."""
LONG_POLLS, LONG_POLLS_PER_TOKEN = 5000, 8
EVENT_STREAMS, EVENT_STREAMS_PER_TOKEN = 500, 32
"""Of one API process, and of one token in it."""
REQUESTS_AT_ONCE = 8
"""Requests of a token that are worked on at a time, and four times as many uploads."""
READING_AT_ONCE = 1
"""Threads of short reads; four times as many where each waits for a network."""


_TELLS: Any = dict.fromkeys(("tracing", "metrics", "logs", "operation_spans", "auto_configure"), False)
"""FastAPI's own telemetry, of versions that have one: it would tell addresses, queries and what exceptions say. Ours is
`service.api.traced`."""


def build_services(settings: config.Settings) -> Services:
    """Return the parts of one API process."""
    database = Database(settings)
    blobs = open_blobs(settings)
    wakeup = Wakeup(settings)

    def read_versions(ids: list[str]) -> dict[str, int]:
        with database.read() as session:
            return versions(session, ids)

    def read_events(after: int | None, limit: int) -> Batch:
        with database.read() as session:
            return Batch([], head(session)) if after is None else read(session, after, limit)

    def read_state() -> State:
        with database.read() as session:
            return state(session)

    def read_running() -> list[Job]:
        with database.read() as session:
            return running(session)

    changes = Changes(read_versions, POLL_SECONDS)
    feed = Feed(read_events, read_running, POLL_SECONDS)
    parts = blobs.open_parts()
    store = Store(database, blobs.store, wakeup.request, changes.kick, parts, feed.kick)
    free_bytes, connections = blobs.scratch.free_bytes, database.connections
    gauges = Gauges(read_state, free_bytes, lambda: changes.waiting, lambda: feed.viewers, connections)
    metrics = Metrics(gauges, __version__)
    rates = Rates(settings, metrics.rates_alone)
    polls = Slots("long polls", LONG_POLLS_PER_TOKEN, LONG_POLLS)
    streams = Slots("event streams", EVENT_STREAMS_PER_TOKEN, EVENT_STREAMS)
    return Services(
        settings,
        database,
        blobs,
        parts,
        store,
        changes,
        Desk(store),
        Together(store, READING_AT_ONCE if settings.is_sqlite else 4 * READING_AT_ONCE),
        Deliveries(store),
        feed,
        wakeup,
        metrics,
        rates,
        polls,
        streams,
        ConcurrencyLimit(REQUESTS_AT_ONCE),
        ConcurrencyLimit(4 * REQUESTS_AT_ONCE),
    )


def write_refusals(services: Services) -> None:
    """Write what was refused since the last time to the audit log, summed up."""
    found = services.refusals.drain()
    if found:
        with services.store.write() as session:
            audit.record_refusals(session, found)


async def _repeat(what: str, seconds: float, act: Callable[[], None], ending: asyncio.Event) -> None:
    """Do something in a thread every so often until the end; a fault is logged, and it comes again."""
    while not ending.is_set():
        try:
            await asyncio.to_thread(act)
        except Exception:
            log.exception("%s failed; it is tried again", what)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ending.wait(), seconds)


@contextlib.contextmanager
def _leave_at_once(services: Services) -> Any:
    """End long polls and streams when the process is told to stop, or it would wait for them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def handle(number: int, frame: FrameType | None) -> None:
        services.changes.close()
        services.feed.close()
        old = before[signal.Signals(number)]
        if callable(old):
            old(number, frame)

    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    services: Services = app.state.services
    log.info("%d architectures, %d choices of other packages", len(CATALOGUE), len(plugins.installed()))
    anyio.to_thread.current_default_thread_limiter().total_tokens = services.settings.threads
    news = contextlib.ExitStack()
    services.changes.start(news.enter_context(watch.news(services.database.engine, services.changes.kick)))
    bell = services.settings.changed_bell
    if bell is not None:
        news.enter_context(contextlib.closing(Answering(bell, services.changes.kick)))
    services.feed.start()
    ending = asyncio.Event()
    settings, store = services.settings, services.store
    sending = _sending(services)
    chores = asyncio.gather(
        *(_repeat("sending metrics", seconds, send, ending) for send, seconds in sending),
        _repeat("sweep", SWEEP_SECONDS, lambda: sweep(store, settings.lease_seconds), ending),
        _repeat("tidy", _TIDY_SECONDS, lambda: tidy(store, services.blobs, settings), ending),
        _repeat("traffic", TRAFFIC_SECONDS, lambda: traffic.flush(store, services.traffic), ending),
        _repeat("log of refusals", _TIDY_SECONDS, lambda: write_refusals(services), ending),
    )
    with _leave_at_once(services):
        yield
    ending.set()  # not cancelled: a thread would go on with connections that are closed below
    await chores
    await asyncio.to_thread(write_refusals, services)
    await asyncio.to_thread(traffic.flush, store, services.traffic)
    for send, _ in sending:
        await asyncio.to_thread(send.close)
    await asyncio.to_thread(traces.close)
    await services.changes.stop()
    await services.feed.stop()
    await asyncio.to_thread(news.close)
    services.wakeup.close()
    services.database.close()


def _sending(services: Services) -> "list[tuple[Sending, float]]":
    """Return what sends metrics by OTLP, and every how many seconds; empty where nobody wants them."""
    if not traces.wanted("metrics"):
        return []
    from service.infra.otlp import Sending, every_seconds

    return [(Sending(services.metrics.registry), every_seconds())]


def _gone(request: Request, error: Exception) -> Response:
    request.scope[LEFT] = True
    return Response(status_code=400)


class Assets(StaticFiles):
    """Files of our own pages: kept by browsers, and asked for anew by their ETag, so that an update is seen at once."""

    def file_response(self, *args: Any, **options: Any) -> Response:
        """Return a file."""
        response = super().file_response(*args, **options)
        response.headers["Cache-Control"] = "no-cache"
        return response


def create_app(settings: config.Settings | None = None) -> FastAPI:
    """Return the API application; `uvicorn service.app:create_app --factory` serves it."""
    own = settings is None
    if settings is None:  # a program of its own, not a part of one
        os.umask(UMASK)
        traces.name_program("potstill-api")
        settings = config.load()
    log_to_stderr(settings.log_level.upper(), settings.log_format)
    for sentence in config.unread(os.environ):
        log.warning(sentence)
    app = FastAPI(title="Potstill", docs_url=None, redoc_url=None, lifespan=_lifespan, telemetry=_TELLS)
    try:
        app.state.services = build_services(settings)
    except StartError as error:
        if not own:
            raise
        raise SystemExit(f"error: {error}") from error  # a server that makes the app shows one line, no traceback
    app.add_middleware(LimitConcurrency, services=app.state.services)
    app.add_middleware(Frame, services=app.state.services)
    app.add_middleware(Traced)
    app.add_middleware(Telemetry, metrics=app.state.services.metrics, traffic=app.state.services.traffic)
    app.add_middleware(CheckedStart, settings=settings)
    app.add_middleware(Under)
    app.add_middleware(Direct)
    problems.install(app)
    app.add_exception_handler(Gone, _gone)
    app.add_exception_handler(Answered, answer_again)
    modules = (
        federations,
        drafts,
        devices,
        uploads,
        staging,
        rounds,
        secure,
        models,
        datasets,
        networks,
        predictions,
        jobs,
        events,
        catalogue,
        tokens,
        session,
        metrics,
        status,
        pages,
    )
    add_routes(app, (module.router for module in modules))
    app.mount("/static", Assets(directory=str(files("service") / "static")), name="static")
    app.openapi = lambda: document_of(app)  # type: ignore[method-assign]
    if own:  # what is here by now stays to the end: a collector that looks it through stops all requests meanwhile
        gc.collect()
        gc.freeze()
    return app
