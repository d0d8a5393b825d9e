"""Devices in rounds that do not wait, by a virtual clock: what each begins from, and which buffer an update is in.

Nothing is trained here: what is decided depends on the plan, on how fast devices are, and on what rounds published.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from contract.wire.plans import Buffering, RoundsPlan
from potstill.simulate.speeds import Pace
from service.domain import rounds as rules
from service.domain.buffered import Given, Version, labels, staleness

_ZERO = datetime(2000, 1, 1, tzinfo=UTC)
_PUBLISHED = ""
"""Stands among the names of devices for the service: no device has it, and it comes before all of them."""


@dataclass(frozen=True)
class Work:
    """A piece of work, under way or delivered.

    Attributes:
        client: its device's name.
        begun: the round whose base model it began from.
        turn: how many updates its device had given from that model before.
    """

    client: str
    begun: int
    turn: int

    @property
    def given(self) -> Given:
        """What decides its place among its device's."""
        return Given(self.client, self.begun, self.turn)


class Filled(NamedTuple):
    """A buffer that has closed.

    Attributes:
        works: in the order of arrival.
        called: what each of them is called.
        decision: what becomes of it.
        clock: when it closed, in seconds since the first round opened.
    """

    works: list[Work]
    called: dict[Work, str]
    decision: rules.Decision
    clock: float


@dataclass
class Fleet:
    """All devices of a federation whose rounds do not wait.

    Attributes:
        plan: of the rounds; another one holds from the next buffer on.
        pace: how fast they are.
        models: device -> the model that it trains.
        samples: (device, round) -> samples that it trains on for it, in all epochs.
        clock: seconds since the first round opened.
    """

    plan: RoundsPlan
    pace: Pace
    models: Mapping[str, str]
    samples: Callable[[str, int], int]
    clock: float = 0.0
    _index: int = 0
    _fusing: bool = False
    _published: dict[int, Collection[str]] = field(default_factory=dict)
    _events: list[tuple[float, str]] = field(default_factory=list)
    _doing: dict[str, Work] = field(default_factory=dict)
    _turns: Counter[tuple[str, int]] = field(default_factory=Counter)
    _numbers: Counter[str] = field(default_factory=Counter)
    _here: list[Work] = field(default_factory=list)

    @property
    def _buffering(self) -> Buffering:
        assert self.plan.buffering is not None
        return self.plan.buffering

    @property
    def begun(self) -> set[int]:
        """The rounds whose base models works began from that are under way or buffered, or may begin."""
        return {each.begun for each in (*self._doing.values(), *self._here)} | {self._source}

    @property
    def _source(self) -> int:
        """The round whose base model devices begin from now."""
        return self._index - 1 if self._fusing else self._index

    def published(self, index: int, models: Collection[str]) -> None:
        """Take note of what a round has published; that of the first models is round 0."""
        self._published[index] = models

    def fill(self) -> Filled:
        """Return the next buffer, as it closes; what the one before published was told meanwhile."""
        self._index += 1
        self._fusing, self._here = self._index > 1 and self.pace.speeds.fuse_seconds > 0, []
        if self._fusing:
            heapq.heappush(self._events, (self.clock + self.pace.speeds.fuse_seconds, _PUBLISHED))
        self._ask([name for name in self.models if name not in self._doing])
        deadline, extensions = self.clock + self.plan.deadline_seconds, 0
        while (decision := self._decide(deadline, extensions)).action in ("wait", "extend"):
            if decision.action == "extend":
                deadline, extensions = deadline + self.plan.deadline_seconds, extensions + 1
            elif not self._fusing and (not self._events or self._events[0][0] > deadline):
                self.clock = deadline
            elif (name := self._step()) == _PUBLISHED:
                deadline = self.clock + self.plan.deadline_seconds
            elif self._decide(deadline, extensions).action == "wait":
                self._ask([name])
        called = labels(each.given for each in self._here)
        return Filled(self._here, {each: called[each.given] for each in self._here}, decision, self.clock)

    def age(self, work: Work) -> int:
        """Return how often a work's model was replaced before the newest buffer."""
        versions = [self._version(index) for index in range(work.begun, self._index)]
        return staleness(self.models[work.client], versions)

    def _version(self, index: int) -> Version:
        if self._fusing and index == self._index - 1:
            return Version("aggregating", ())
        return Version("published", tuple(self._published[index]))

    def _decide(self, deadline: float, extensions: int) -> rules.Decision:
        here, most = len(self._here), self._buffering.per_client * len(self.models)
        view = rules.RoundView(
            asked=max(here, most),
            answered=here,
            needed=self._buffering.size,
            min_updates=self.plan.least,
            deadline_at=_ZERO + timedelta(seconds=deadline),
            extensions=extensions,
            waits=self._fusing,
        )
        return rules.decide(view, _ZERO + timedelta(seconds=self.clock), self.plan)

    def _ask(self, names: Collection[str]) -> None:
        """Let devices begin what they are told, but those whose share of the buffer is full."""
        given = Counter(each.client for each in self._here)
        for name in names:
            if given[name] >= self._buffering.per_client:
                continue
            work = Work(name, self._source, self._turns[name, self._source])
            self._doing[name] = work
            number = self._numbers[name]
            self._numbers[name] += 1
            seconds = self.pace.seconds(name, number, self.samples(name, work.begun))
            heapq.heappush(self._events, (self.clock + seconds, name))

    def _step(self) -> str:
        """Go to the next moment at which something happens; return whose work has ended, or that a model is there."""
        self.clock, name = heapq.heappop(self._events)
        if name == _PUBLISHED:
            self._fusing = False
            return name
        work = self._doing.pop(name)
        dropped = self.pace.drops(name, self._numbers[name] - 1)
        if not dropped and self.age(work) <= self._buffering.max_staleness:
            self._here.append(work)
            self._turns[name, work.begun] += 1
        return name
