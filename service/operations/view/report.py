"""What a federation has cost, from its rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from contract.federation import SERVER
from contract.groups import is_main
from contract.tasks import measured_of
from contract.updates import SEND, extras
from contract.wire.report import Bytes, Cost, FederationReport, Flops, NetworkFigures, Role, RoundCost, Seconds
from service.domain import costs, learning
from service.infra.traffic import AFTERWARDS
from service.operations.progress import reading
from service.operations.store import traffic
from service.operations.view.parts import Part, newcomers, of_rounds, trained
from service.persistence.tables import (
    ClientRow,
    DatasetRow,
    DiscriminatorRow,
    FederationRow,
    GanUpdateRow,
    JobRow,
    ModelRow,
    RoundRow,
)


@dataclass
class Wire:
    """What was measured: of devices by round, and of everybody else."""

    rounds: dict[int, Bytes] = field(default_factory=dict)
    others: int = 0


@dataclass(frozen=True)
class Seen:
    """What is read once: bytes, jobs that are done, networks."""

    wire: Wire
    jobs: list[JobRow]
    networks: list[NetworkFigures]


def report(session: Session, federation: FederationRow, targets: Sequence[float]) -> FederationReport:
    """Return what a federation has cost so far."""
    seen = Seen(_wire(session, federation), _jobs(session, federation), _networks(session, federation))
    before, rounds, wire = _before(session, federation, seen), _rounds(session, federation, seen), seen.wire
    config = reading.config_of(federation)
    first, metric = _first_measured(session, federation), config.task.main_metric
    return FederationReport(
        federation_id=federation.id,
        name=federation.name,
        state=federation.state,
        recipe=federation.config["recipe"]["name"],
        metric=metric.name,
        higher_is_better=metric.higher_is_better,
        first=first,
        parts=costs.parts_of(config, federation.seed),
        networks=seen.networks,
        before=before,
        rounds=rounds,
        total=costs.total(before, rounds),
        afterwards=wire.rounds.get(AFTERWARDS, Bytes()),
        others=wire.others,
        learnt=learning.learnt(config),
        targets=[costs.to_target(target, first, before, rounds, metric) for target in targets],
    )


def _wire(session: Session, federation: FederationRow) -> Wire:
    found = Wire()
    for account, counts in traffic.kept(session, federation.id):
        if not account.client_id:
            found.others += counts.down
            continue
        known = found.rounds.get(account.round_index, Bytes())
        found.rounds[account.round_index] = known + Bytes(down=counts.down, up=counts.up)
    return found


def _jobs(session: Session, federation: FederationRow) -> list[JobRow]:
    done = select(JobRow).where(JobRow.federation_id == federation.id, JobRow.state == "done").order_by(JobRow.id)
    return list(session.scalars(done))


_NETWORKS: dict[str, Role] = {reading.GENERATOR: "generator", reading.DISCRIMINATOR: "discriminator"}


def _networks(session: Session, federation: FederationRow) -> list[NetworkFigures]:
    """Return the networks that take part, those of rounds first."""
    wanted = (ModelRow.federation_id == federation.id) & ModelRow.role.in_(("initial", *_NETWORKS))
    return [_network(row) for row in session.scalars(select(ModelRow).where(wanted).order_by(ModelRow.id))]


def _network(row: ModelRow) -> NetworkFigures:
    role = _NETWORKS.get(row.role)
    if role is not None:
        return costs.network_of(role, role, row.architecture, row.size, row.metrics.get("network"))
    name = row.prototype or ""
    kind: Role = "server" if name == SERVER else "prototype"
    return costs.network_of(name, kind, row.architecture, row.size, row.metrics.get("network"))


def _first_measured(session: Session, federation: FederationRow) -> float | None:
    """Return the main figure of the first models: the server's, where it has one, else the mean over the main ones."""
    query = select(ModelRow).where(ModelRow.federation_id == federation.id, ModelRow.role == "initial")
    rows = {row.prototype or "": measured_of(row.metrics) for row in session.scalars(query)}
    wanted = {SERVER} if SERVER in rows else {name for name in rows if is_main(name)}
    found = [each for name, each in rows.items() if name in wanted and each is not None]
    return sum(found) / len(found) if found else None


# ----------------------------------------------------------------------------------------------- before the first round
def _before(session: Session, federation: FederationRow, seen: Seen) -> Cost:
    files = _sent(session, federation, GanUpdateRow, reading.GAN)
    files += _sent(session, federation, DiscriminatorRow, reading.GENERATOR)
    seconds = Seconds()
    for job in seen.jobs:
        if job.round_id is None:
            seconds += Seconds(jobs=_took(job), phases={job.kind: _took(job)})
    delivered = select(ClientRow.num_samples).join(DiscriminatorRow, DiscriminatorRow.client_id == ClientRow.id)
    samples = session.scalars(delivered.where(DiscriminatorRow.federation_id == federation.id))
    flops = costs.discriminator_flops(reading.config_of(federation), samples, seen.networks)
    return Cost(files=files, wire=_counted(seen.wire, 0, files), seconds=seconds, flops=flops)


def _sent(session: Session, federation: FederationRow, table: type[Any], role: str) -> Bytes:
    """Return the bytes of what devices made from a model of a role, which each of them was sent before."""
    query = select(func.count(), func.sum(table.size)).where(table.federation_id == federation.id)
    count, up = session.execute(query).one()
    size = select(func.max(ModelRow.size)).where(ModelRow.federation_id == federation.id, ModelRow.role == role)
    return Bytes(down=count * (session.scalar(size) or 0), up=int(up or 0))


def _counted(wire: Wire, index: int, files: Bytes) -> Bytes | None:
    """Return what was measured; None where something went over the wire and nobody had begun to count."""
    return wire.rounds.get(index, None if files.down or files.up else Bytes())


# ------------------------------------------------------------------------------------------------------------ one round
def _rounds(session: Session, federation: FederationRow, seen: Seen) -> list[RoundCost]:
    parts, sizes = of_rounds(session, federation), _sizes(session, federation)
    beside, done = _first_sent(session, federation), {job.round_id: job for job in seen.jobs}
    public, begun = _public(session, federation), newcomers(session, federation)
    query = select(RoundRow).where(RoundRow.federation_id == federation.id).order_by(RoundRow.index)
    found, begun_at = list[RoundCost](), None
    for row in session.scalars(query):
        begun_at = begun_at or row.opened_at
        mine, job = parts.get(row.id, []), done.get(row.id)
        down = sum(_sent_to(each, row, sizes, beside, begun) for each in mine)
        files = Bytes(down=down, up=sum(each.up for each in mine))
        found.append(
            RoundCost(
                round=row.index,
                state=row.state,
                accuracy=row.metrics.get("accuracy") if row.state == "published" else None,
                measured=row.metrics.get("measured") if row.state == "published" else None,
                clock=_clock(begun_at, row, job),
                devices=sum(each.devices for each in mine),
                answered=sum(each.answered for each in mine),
                files=files,
                wire=_counted(seen.wire, row.index, files),
                seconds=_seconds(row, mine, job),
                flops=_flops(session, federation, row, seen.networks, public),
            )
        )
        beside = row.metrics.get("sent", beside)
    return found


def _public(session: Session, federation: FederationRow) -> int:
    """Return the size of the set that devices predict on, where they do; 0 where there is none."""
    config = reading.config_of(federation)
    row = None if config.datasets.unlabeled is None else session.get(DatasetRow, config.datasets.unlabeled)
    return 0 if config.public is None else costs.public_samples(config, None if row is None else row.num_samples)


def _flops(
    session: Session, federation: FederationRow, row: RoundRow, networks: Sequence[NetworkFigures], public: int
) -> Flops | None:
    config, figures = reading.config_in(federation, row), row.metrics or None
    updates = trained(session, row, config)
    return costs.round_flops(config, federation.seed, row.index, updates, networks, figures, public)


def _sizes(session: Session, federation: FederationRow) -> dict[str, int]:
    """Return model id -> bytes, of a federation's models and of imported ones."""
    mine = (ModelRow.federation_id == federation.id) | ModelRow.federation_id.is_(None)
    return {row.id: row.size for row in session.execute(select(ModelRow.id, ModelRow.size).where(mine))}


def _first_sent(session: Session, federation: FederationRow) -> dict[str, int]:
    """Return name -> bytes of what the first round's devices are sent beside the model.

    The first models tell it, as those rows go when others follow; before, none went that was asked for here.
    """
    first = select(ModelRow.metrics).where(ModelRow.federation_id == federation.id, ModelRow.role == "initial")
    told = [metrics["sent"] for metrics in session.scalars(first) if "sent" in metrics]
    if told:
        return dict(told[0])
    mine = (ModelRow.federation_id == federation.id) & (ModelRow.role == "state") & (ModelRow.round_index == 0)
    rows = session.execute(select(ModelRow.name, ModelRow.size).where(mine, ModelRow.name.startswith(SEND)))
    return {row.name: row.size for row in rows}


def _sent_to(
    part: Part, row: RoundRow, sizes: dict[str, int], beside: dict[str, int], begun: Mapping[tuple[int, str], int]
) -> int:
    """Return the bytes that a part's devices were sent, those that have begun with its prototype and the others."""
    model, more = sizes.get(row.base_models.get(part.prototype, ""), 0), extras(beside, part.prototype)
    first = begun.get((row.index, part.prototype), 0)
    later = part.devices - first
    return first * costs.sent_down(model, more, True) + later * costs.sent_down(model, more, False)


def _seconds(row: RoundRow, parts: Sequence[Part], job: JobRow | None) -> Seconds:
    return Seconds(
        collecting=_between(row.opened_at, row.closed_at),
        devices=round(sum(each.took for each in parts), 3),
        slowest=round(max((each.slowest for each in parts), default=0.0), 3),
        training=round(sum(each.training for each in parts), 3),
        queued=0.0 if job is None else _between(row.closed_at, job.started_at),
        jobs=0.0 if job is None else _took(job),
        phases=dict(row.metrics.get("seconds", {})),
    )


def _clock(begun: datetime, row: RoundRow, job: JobRow | None) -> float | None:
    """Return the seconds from the first round's opening to a round's end; None where it goes on."""
    ended = row.published_at or (None if job is None else job.finished_at) or row.closed_at
    return None if ended is None or row.state in ("collecting", "aggregating") else _between(begun, ended)


def _took(job: JobRow) -> float:
    return _between(job.started_at, job.finished_at)


def _between(begun: datetime | None, ended: datetime | None) -> float:
    """Return the seconds between two moments; 0 where one is missing, or the clock went back."""
    return 0.0 if begun is None or ended is None else round(max(0.0, (ended - begun).total_seconds()), 3)
