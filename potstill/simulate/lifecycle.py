"""What the service decides of rounds, by its own rules and without its database: published, turned away, skipped, over.

A simulation has no operator. Where the service would pause and wait for one, the simulation ends and says why.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from contract.evaluation import Evaluation
from contract.federation import FederationConfig
from contract.tasks import measured_of, without_measured
from contract.wire.report import Cost
from potstill.simulate.history import Ending, Participation, RoundRecord
from service.domain import carried, gate, selection
from service.domain import rounds as rules
from service.domain.evaluation import main_median, of_models
from worker.specs import JobResult

_CLOCK = datetime(2000, 1, 1, tzinfo=UTC)
"""Devices answer all at once, so that no deadline is met or missed."""


@dataclass(frozen=True)
class RoundDone:
    """One round's devices and its job.

    Attributes:
        participants: who was asked, and answered.
        result: the job's; None where too few answered.
        digests: of the files of the result's state, by name.
        seconds: wall-clock time of both.
        cost: what it has cost; None where nobody counted.
        clock: when its models were there by the virtual clock; None where there is none.
    """

    participants: list[Participation]
    result: JobResult | None
    digests: Mapping[str, str]
    seconds: float
    cost: Cost | None = None
    clock: float | None = None


class Lifecycle:
    """One federation's way from round to round.

    Args:
        config: the federation's.
        initial: its first models.
        digests: of the files of its first state, by name.

    Attributes:
        record: the newest round.
    """

    def __init__(self, config: FederationConfig, initial: RoundRecord, digests: Mapping[str, str]):
        self.record = initial
        self._config, self._plan, self._metric = config, config.rounds, config.task.main_metric
        self._measured_last, self._skipped, self._ever = initial.measured, 0, False
        self._halted: Ending | None = None
        self._digests = dict(digests)
        self._made = dict.fromkeys(initial.state, 0)
        """Round in which each of the state's files was made; the same content again is no new file."""
        self._published = {name: {0: path} for name, path in initial.models.items()}
        self._current = dict.fromkeys(initial.models, 0)
        self._measured: dict[str, dict[int, float]] = defaultdict(dict)
        self._replaced: dict[str, dict[int, int]] = defaultdict(dict)
        """By name and the round that made a model: that of the one whose place it took."""

    # ------------------------------------------------------------------------------------------------- between rounds
    def replan(self, config: FederationConfig) -> None:
        """Go on by another plan: the round that was last accepted had the old one."""
        self._config, self._plan = config, config.rounds

    def ending(self) -> Ending | None:
        """Return how the simulation has ended, or None if another round opens."""
        if self._halted is not None:
            return self._halted
        record = self.record
        standing = rules.Standing(record.index, self._measured_last, self._skipped, record.reason)
        onward = rules.onward(standing, self._plan, self._metric)
        if onward.action == "open":
            return None
        if onward.action == "halt":
            return Ending(state="paused", error=rules.SKIPPED, detail=onward.detail)
        if self._ever:
            return Ending(state="finished")
        error, detail = rules.ends_empty(record.reason)
        return Ending(state="failed", error=error, detail=detail)

    @property
    def wanted(self) -> int:
        """How many clients the next round needs to open."""
        return rules.clients_wanted(self._plan, first=self.record.index == 0)

    def closing(self, asked: int, enrolled: int, answered: int | None = None) -> rules.Decision:
        """Return what becomes of a round that is over: everybody who was asked has answered, or so many have."""
        view = rules.RoundView(
            asked=asked,
            answered=asked if answered is None else answered,
            needed=selection.needed(self._plan, enrolled),
            min_updates=self._plan.least,
            deadline_at=_CLOCK,
        )
        return rules.decide(view, _CLOCK, self._plan)

    def files(self, keep_models: bool) -> set[Path]:
        """Return what is still read or kept: state, current models, and all that were published or may come back."""
        found = {*self.record.state.values(), *self.record.models.values()}
        for name, made in self._published.items():
            known = self._measured[name]
            if keep_models:
                found |= set(made.values())
                continue
            replaced = self._replaced[name].get(self._current[name])
            if replaced is not None and self._plan.gate is not None:
                found.add(made[replaced])
            if known:
                found.add(made[max(known, key=lambda index: (self._metric.goodness(known[index]), index))])
        return found

    # -------------------------------------------------------------------------------------------------- after a round
    def accept(self, done: RoundDone, decision: rules.Decision) -> RoundRecord:
        """Take a round in; return its record."""
        if done.result is None:
            self.record = self._closed(done, decision)
        else:
            self.record = self._fused(done, done.result)
        return self.record

    def _closed(self, done: RoundDone, decision: rules.Decision) -> RoundRecord:
        """Return the record of a round that was not fused."""
        index, reason = self.record.index + 1, decision.reason
        outcome: Literal["failed", "skipped"] = "failed" if decision.action == "fail" else "skipped"
        if outcome == "failed":
            self._halted = Ending(state="paused", error=rules.TOO_FEW, detail=f"round {index}: {reason}")
        else:
            self._skipped += 1
        told = f"{rules.TOO_FEW}: {reason}" if outcome == "failed" else reason
        return self._record(done, outcome, told, {}, {})

    def _fused(self, done: RoundDone, result: JobResult) -> RoundRecord:
        index, metrics = self.record.index + 1, dict(result.metrics)
        if evaluated := self._evaluated(done.participants, metrics.get("excluded", {})):
            metrics["evaluation"] = evaluated
        rejected = self._judge(metrics)
        files = {name: path for name, path in result.models.items() if name not in rejected}
        published = bool(files) or not rejected
        self._publish(index, files, metrics)
        state = self._state(index, done, rejected, published)
        reason = gate.reason(rejected) if rejected else None
        if published:
            self._skipped, self._ever = 0, True
        else:
            self._skipped += 1
        if rejected:
            metrics = without_measured(metrics)  # it would be that of models that nobody gets
            self._turn_away(index, rejected, metrics, state)
        elif published:
            measured = measured_of(metrics)
            self._measured_last = self._measured_last if measured is None else measured
        return self._record(done, "published" if published else "skipped", reason, files, metrics, state)

    def _evaluated(self, participants: list[Participation], excluded: Mapping[str, str]) -> dict[str, Any]:
        """Return what devices measured of the models that the round began with, by name."""
        told: dict[str, dict[str, Evaluation]] = defaultdict(dict)
        for part in participants:
            fresh = part.begun in (None, self.record.index + 1)  # others measured an older model
            if part.evaluation is not None and fresh and part.called not in excluded:
                told[part.prototype][part.client] = part.evaluation
        return of_models(told, self._config)

    def _judge(self, metrics: dict[str, Any]) -> dict[str, str]:
        """Return the models that the gate turns away, with the reason; note in the figures who passed."""
        plan = self._plan.gate
        on_devices = self._on_devices(metrics.get("evaluation", {}))
        if plan is not None and plan.role is None and on_devices:
            metrics["gate"] = {"metric": plan.metric, "models": on_devices}
        figures = metrics.get("gate", {}).get("models", {})
        if plan is None or not figures:
            return {}
        for name, figure in figures.items() if plan.role is not None else ():
            self._measured[name][self._current[name]] = figure["before"]
        rejected = gate.rejected(plan, figures, self._metric)
        metrics["gate"] = gate.judged(plan, metrics["gate"], rejected)
        return rejected

    def _on_devices(self, evaluation: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
        """Return `before` and `after` of models that devices measured for the first time: what each replaced, itself.

        Only where the gate reads what devices measure.
        """
        if self._plan.gate is None or self._plan.gate.role is not None:
            return {}
        found = {}
        for name, figures in evaluation.items():
            after, measured, current = main_median(figures), self._measured[name], self._current[name]
            if after is None or current in measured:
                continue
            measured[current] = after
            old = self._replaced[name].get(current)
            if old in measured:
                found[name] = {"before": measured[old], "after": after}
        return found

    def _publish(self, index: int, files: Mapping[str, Path], metrics: Mapping[str, Any]) -> None:
        for name, path in files.items():
            self._published[name][index] = path
            self._replaced[name][index] = self._current[name]
            self._current[name] = index
            after = metrics.get("gate", {}).get("models", {}).get(name, {}).get("after")
            if after is not None and metrics["gate"]["metric"] != "devices":  # that is of the model before this one
                self._measured[name][index] = after

    def _state(self, index: int, done: RoundDone, rejected: Mapping[str, str], published: bool) -> dict[str, Path]:
        """Return what is kept for the next round; note when each of its files was made."""
        old, result = self.record.state, done.result
        if result is None or result.state is None:
            return dict(old)
        new = {name: (path, done.digests[name]) for name, path in result.state.items()}
        before = {name: (path, self._digests[name]) for name, path in old.items()}
        found = carried.after_gate(before, new, rejected.keys(), not published) if rejected else new
        self._made = {
            name: self._made[name] if self._digests.get(name) == digest else index
            for name, (_, digest) in found.items()
        }
        self._digests = {name: digest for name, (_, digest) in found.items()}
        return {name: path for name, (path, _) in found.items()}

    def _turn_away(
        self, index: int, rejected: Mapping[str, str], metrics: dict[str, Any], state: dict[str, Path]
    ) -> None:
        """Do with a round's rejected models what the plan says."""
        plan = self._plan.gate
        assert plan is not None
        back = {}
        if plan.action == "rollback":
            back = {name: best for name in rejected if (best := self._turn_back(name, state)) is not None}
        elif plan.role is None:
            back = {name: self._go_back(name, self._replaced[name][self._current[name]], state) for name in rejected}
        if back:
            metrics["gate"] = metrics["gate"] | {"rolled_back": back}
        if plan.action == "pause":
            detail = f"round {index}: {gate.reason(rejected)}"
            self._halted = Ending(state="paused", error=gate.CODE, detail=detail)

    def _turn_back(self, name: str, state: dict[str, Path]) -> int | None:
        """Make the best of a prototype's models that were measured current; return its round, None if it is already."""
        best = gate.best(self._measured[name], self._current[name], self._metric)
        return None if best is None else self._go_back(name, best, state)

    def _go_back(self, name: str, index: int, state: dict[str, Path]) -> int:
        """Make a prototype's model of an earlier round current, and let go of the state that later ones have left."""
        self._current[name] = index
        for gone in carried.turned_back(self._made, name, index):
            del state[gone], self._made[gone], self._digests[gone]
        return index

    def _record(
        self,
        done: RoundDone,
        outcome: Literal["published", "skipped", "failed"],
        reason: str | None,
        files: Mapping[str, Path],
        metrics: Mapping[str, Any],
        state: Mapping[str, Path] | None = None,
    ) -> RoundRecord:
        excluded = metrics.get("excluded", {})
        for part in done.participants:
            part.excluded = excluded.get(part.called)
        return RoundRecord(
            index=self.record.index + 1,
            accuracy=metrics.get("accuracy"),
            models={name: self._published[name][index] for name, index in self._current.items()},
            published=sorted(files),
            outcome=outcome,
            reason=reason,
            participants=done.participants,
            state=dict(self.record.state if state is None else state),
            metrics=dict(metrics),
            seconds=done.seconds,
            cost=done.cost,
            clock=done.clock,
        )
