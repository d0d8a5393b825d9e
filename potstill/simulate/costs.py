"""What a simulation has cost, as the service's report tells it: the same builder, from the files of a folder.

Nothing goes over a wire here, devices train one after another, and none waits: `wire`, `collecting`, `slowest` and
`queued` say nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from contract.federation import SERVER, FederationConfig
from contract.groups import original
from contract.tasks import Metric
from contract.updates import extras
from contract.wire.report import Bytes, Cost, FederationReport, NetworkFigures, RoundCost, Seconds
from potstill.simulate.config import SimulationError
from potstill.simulate.history import History, Participation, RoundRecord
from service.domain import costs, learning


def targets_of(metric: Metric, given: Sequence[float] | None) -> Sequence[float]:
    """Return the values whose cost is told; where none are given, those of shares, and of other metrics none.

    Raises:
        SimulationError: a share that is none.
    """
    if given is None:
        return costs.TARGETS if metric.is_share else ()
    wrong = next((each for each in given if metric.is_share and not 0 <= each <= 1), None)
    if wrong is not None:
        raise SimulationError(f"target: {metric.name} is a share, in [0, 1]; {wrong:g} is none")
    return given


def sent(rounds: Sequence[RoundRecord], participants: Iterable[Participation]) -> Bytes:
    """Return the bytes of what a round's devices are sent and send.

    Args:
        rounds: all before it, from the record of the first models on.
        participants: who is asked.
    """
    down = up = 0
    before = rounds[-1]
    begun = {(part.client, original(part.prototype)) for record in rounds for part in record.participants}
    for part in participants:
        beside = {what: path.stat().st_size for what, path in extras(before.state, part.prototype).items()}
        first = (part.client, original(part.prototype)) not in begun
        down += costs.sent_down(before.models[part.prototype].stat().st_size, beside, first)
        up += 0 if part.update is None else part.update.stat().st_size
    return Bytes(down=down, up=up)


def round_cost(note: Mapping[str, Any], metrics: Mapping[str, Any]) -> Cost | None:
    """Return what was noted of a round; None where nobody counted bytes yet."""
    if "files" not in note:
        return None
    trained, job = note["device_seconds"], note["job_seconds"]
    seconds = Seconds(devices=trained, training=trained, jobs=job, phases=dict(metrics.get("seconds", {})))
    return Cost(files=Bytes.model_validate(note["files"]), seconds=seconds)


def job_cost(kind: str, note: Mapping[str, Any], files: Bytes | None = None) -> Cost:
    """Return what a job before the rounds has cost, with what devices were sent and sent for it."""
    took = float(note["job_seconds"])
    return Cost(files=files or Bytes(), seconds=Seconds(jobs=took, phases={kind: took}))


def networks_of(config: FederationConfig, history: History) -> list[NetworkFigures]:
    """Return the networks that take part, those of rounds first."""
    found = []
    for each in config.published:
        effort = history.efforts.get(each.name)
        size = history.sizes.get(each.name, 0)
        role: Any = "server" if each.name == SERVER else "prototype"
        found.append(costs.network_of(each.name, role, each.architecture, size, effort))
    stage = config.recipe.discriminators
    if stage is not None:
        made = {"generator": stage.generator.architecture, "discriminator": stage.plan.architecture}
        for name in (name for name in made if name in history.generator):
            key: Any = name
            effort, size = history.generator_efforts.get(name), history.generator_sizes.get(name, 0)
            found.append(costs.network_of(name, key, made[name], size, effort))
    return found


def report(name: str, config: FederationConfig, history: History, targets: Sequence[float]) -> FederationReport | None:
    """Return the report of a simulation; None of one that was begun before bytes were counted.

    Args:
        name: what it is called.
        config: its own.
        history: all of its rounds.
        targets: test accuracies, or values of what else the task is measured by.
    """
    networks = networks_of(config, history)
    rounds = [_round(config, each, networks, history) for each in history.rounds]
    known = [each for each in rounds if each is not None]
    if len(known) < len(rounds):
        return None
    flops = costs.discriminator_flops(config, history.discriminator_samples, networks)
    before = history.before.model_copy(update={"flops": flops})
    first, metric = history.initial.measured, config.task.main_metric
    return FederationReport(
        federation_id="",
        name=name,
        state="running" if history.ending is None else history.ending.state,
        recipe=config.recipe.name,
        metric=metric.name,
        higher_is_better=metric.higher_is_better,
        first=first,
        parts=costs.parts_of(config, history.seed),
        networks=networks,
        before=before,
        rounds=known,
        total=costs.total(before, known),
        targets=[costs.to_target(target, first, before, known, metric) for target in targets],
        learnt=learning.learnt(history.plan_of(len(rounds) + 1) or config),
    )


def _round(
    config: FederationConfig, record: RoundRecord, networks: Sequence[NetworkFigures], history: History
) -> RoundCost | None:
    if record.cost is None:
        return None
    trained = [costs.Trained(each.client, each.prototype, each.num_samples) for each in record.participants]
    figures = record.metrics or None
    plan = history.plan_of(record.index) or config
    flops = costs.round_flops(plan, history.seed, record.index, trained, networks, figures, history.public_samples)
    return RoundCost(
        **record.cost.model_dump(exclude={"flops"}),
        flops=flops,
        round=record.index,
        state=record.outcome,
        accuracy=record.accuracy if record.outcome == "published" else None,
        measured=record.metrics.get("measured") if record.outcome == "published" else None,
        clock=record.clock,
        devices=len(record.participants),
        answered=len(record.participants),
    )


def write(found: FederationReport | None, path: Path, settings: Mapping[str, Any]) -> None:
    """Write a report as JSON, as `GET /v1/federations/{id}/report` answers it.

    Args:
        found: None where nobody counted, and nothing is written.
        path: where.
        settings: of the experiment, by which it differs from others; they are among its parts.
    """
    if found is not None:
        found = found.model_copy(update={"parts": found.parts | {"simulation": settings}})
        path.write_text(found.model_dump_json(indent=2) + "\n", encoding="utf-8")
