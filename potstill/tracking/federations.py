"""A federation of a service as a run: what the API tells every viewer of it, copied round by round."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from contract.tasks import measured_of
from contract.wire.federations import Federation
from contract.wire.rounds import Round
from potstill.tracking.runs import Point, Sink, TrackedRun, flat

if TYPE_CHECKING:
    from client_sdk import OperatorClient

_OVER, _ENDED = ("published", "skipped"), ("finished", "failed", "cancelled")
_NEWS = (*(f"round.{state}" for state in _OVER), *(f"federation.{state}" for state in _ENDED))
_PARAMETERS = {
    "recipe", "composition", "local", "rounds", "task", "prototypes", "server_model", "datasets", "seed"
}  # fmt: skip


def run_of(federation: Federation) -> TrackedRun:
    """Return a federation as a run, in the group of all of them."""
    told = federation.model_dump(mode="json", include=_PARAMETERS)
    return TrackedRun(federation.id, "potstill", federation.name, dict(flat(told)))


def point_of(found: Round, metric: str) -> Point:
    """Return a round that is over: what the task is measured by, of all models, their averages and the ensemble; each
    model's own figures; who was there; bytes of updates; seconds from opening to publication.
    """
    told: dict[str, float | None] = {metric: measured_of(found.metrics)}
    for name in ("average", "ensemble"):
        told[f"{name}_{metric}"] = measured_of(found.metrics.get(name) or {})
    for model, measures in ((found.metrics.get("model") or {}).get("measures") or {}).items():
        told |= {f"{model}/{name}": value for name, value in measures.items() if isinstance(value, int | float)}
    told |= {"asked": found.asked, "participants": found.answered, "lost": found.lost, "update_bytes": found.size}
    end = found.published_at or found.closed_at or found.opened_at
    told["seconds"] = (end - found.opened_at).total_seconds()
    figures = {name: float(value) for name, value in told.items() if value is not None}
    return Point(found.index, figures, end.timestamp())


class Copy:
    """Copies a federation's rounds to a sink.

    Attributes:
        rounds: how many had something new.
    """

    def __init__(self, client: "OperatorClient", federation_id: str, sink: Sink):
        self._client, self._sink = client, sink
        self._federation = client.federation(federation_id)
        self._run = run_of(self._federation)
        self._after: str | None = None
        self.rounds = 0

    def go(self) -> None:
        """Copy what is over by now."""
        points, gap = [], False
        for each in self._rounds():
            if each.state in _OVER:
                points.append(point_of(each, self._federation.metric))
            gap = gap or each.state not in _OVER
            self._after = self._after if gap else each.id
        self.rounds += self._sink.write(self._run, points)

    def follow(self) -> None:
        """Copy what is over, and each round when it is, until the federation is."""
        seen = self._client.event_page(self._run.key, newest=0).next
        self.go()
        if not self._is_over():
            for event in self._client.events(self._run.key, after=seen):
                if event.kind in _NEWS:
                    self.go()
                    if self._is_over():
                        break
        self.end()

    def end(self) -> None:
        """Say how it ended, if it has."""
        if self._is_over():
            self._sink.end(self._run, failed=self._federation.state == "failed")

    def _is_over(self) -> bool:
        self._federation = self._client.federation(self._run.key)
        return self._federation.state in _ENDED

    def _rounds(self) -> Iterator[Round]:
        after = self._after
        while True:
            page = self._client.rounds(self._run.key, after=after)
            yield from page.items
            if page.next is None:
                return
            after = page.next
