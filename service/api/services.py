"""What a request may use: settings, store, hub, broker. Made once in `service.app`."""

from dataclasses import dataclass, field

from service.api.deliveries import Deliveries
from service.api.desk import Desk
from service.api.together import Together
from service.config import Settings
from service.infra.blobs import Blobs
from service.infra.changes import Changes
from service.infra.concurrency import ConcurrencyLimit
from service.infra.feed import Feed
from service.infra.metrics import Metrics
from service.infra.parts import Parts
from service.infra.rates import Rates, RecentTokens, Slots
from service.infra.refusals import Refusals
from service.infra.throttle import Throttle
from service.infra.traffic import Traffic
from service.infra.wakeup import Wakeup
from service.operations.ledger.unit import Store
from service.persistence.engine import Database


@dataclass(frozen=True)
class Services:
    """The parts of one API process."""

    settings: Settings
    database: Database
    blobs: Blobs
    parts: Parts
    store: Store
    changes: Changes
    desk: Desk
    together: Together
    deliveries: Deliveries
    feed: Feed
    wakeup: Wakeup
    metrics: Metrics
    rates: Rates
    polls: Slots
    streams: Slots
    concurrency: ConcurrencyLimit
    upload_concurrency: ConcurrencyLimit
    refusals: Refusals = field(default_factory=Refusals)
    recent_tokens: RecentTokens = field(default_factory=RecentTokens)
    event_throttle: Throttle = field(default_factory=Throttle)
    traffic: Traffic = field(default_factory=Traffic)
