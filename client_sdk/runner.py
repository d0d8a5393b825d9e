"""A device's loop: enrol, then train and push whatever the service asks for, until it is done."""

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from torch import nn

from client_sdk import identity, methods, metrics, models, named, trial
from client_sdk.client import Kind, update_url
from client_sdk.deliveries import Deliveries
from client_sdk.documents import is_document
from client_sdk.errors import NotFound, Unauthorized
from client_sdk.handed import Handed
from client_sdk.heartbeat import Heartbeats
from client_sdk.progress import Progress
from client_sdk.reports import Report, RoundReport, RunReport
from client_sdk.resources import Resources
from client_sdk.rounds import Mask, final_model, train_round
from client_sdk.secure.rounds import SecureAssignment, SecureRounds
from client_sdk.stages import train_against, train_gan_round
from client_sdk.state import Pending
from client_sdk.tracing import span
from client_sdk.training import Hooks
from client_sdk.watched import Stopped
from contract import traces
from contract.local import LocalPlan
from contract.prototypes import choose
from contract.wire.devices import (
    Assignment,
    DiscriminatorAssignment,
    DoneAssignment,
    FederationCard,
    TrainAssignment,
    TrainGanAssignment,
    WaitAssignment,
)
from contract.wire.federations import Prototype, Task

WAIT_SECONDS = 30.0
_STOPPABLE_WAIT = 5.0


class DeviceRun:
    """One run of the device's loop: assignment, work, upload, again.

    Args:
        model: the user's own network, or a function that makes it.
        on_round: called after each round.
        secure, peers: as `train_and_push`.
        tried: that a step can be trained is known already.
        stop: set from outside to end the run.
    """

    def __init__(
        self,
        resources: Resources,
        progress: Progress,
        model: models.UserModel | None = None,
        on_round: Callable[[RoundReport], None] | None = None,
        secure: bool = False,
        peers: Mapping[str, str] | None = None,
        *,
        tried: bool = False,
        sleep: Callable[[float], None] = time.sleep,
        stop: threading.Event | None = None,
    ):
        self.resources, self.progress, self.model, self.on_round = resources, progress, model, on_round
        self.client, self.folder, self.samples = resources.client, resources.folder, resources.samples
        self.reports: list[RoundReport] = []
        self._deliveries = Deliveries(self.client, self.folder, progress)
        self._sleep, self._tried, self._stop = sleep, tried, stop
        self._unmeasured: set[str] = set()
        self._pass_seconds: float | None = None
        self._secure = SecureRounds(
            self.client, self.folder, progress, required=secure, peers=peers, sleep=lambda seconds: self._sleep(seconds)
        )
        self._module: nn.Module | None = None
        self._network: tuple[str, str] | None = None
        self._epsilon_before: float | None = None
        self._quick_waits = 0
        self._patience = 0.0  # the first question is answered at once, so that a person sees what is waited for

    def take_part(self, application: identity.Application, rounds: int | None) -> RunReport:
        """Be the device that the folder remembers, or enrol; then work as `run` does."""

        def check(card: FederationCard) -> None:
            self._check(card, choose(card.prototypes, application.capabilities or {}, application.prototype))

        who = identity.establish(self.client, self.folder, application, check)
        identity.declare(self.client, self.folder, application.num_samples, application.label_counts)
        self._deliveries.hold(application.num_samples, application.label_counts)
        self.progress.say(
            f"{who.name}: {len(self.samples)} samples, {self.resources.device}; asks {self.client.url} for work"
        )
        return self.run(rounds, who.client_id)

    def run(self, rounds: int | None, client_id: str | None) -> RunReport:
        """Work until the federation is done, or `rounds` updates were taken."""
        while True:
            assignment = self._next()
            if isinstance(assignment, DoneAssignment):
                return self._finish(assignment, client_id)
            if self.samples.task is None:
                self.resources.check(assignment.task)
            if isinstance(assignment, TrainAssignment):
                with suppress(Stopped):
                    self._train(assignment)
            elif isinstance(assignment, TrainGanAssignment):
                self._train_gan(assignment)
            elif isinstance(assignment, SecureAssignment):
                self._secure.answer(assignment)
            elif isinstance(assignment, DiscriminatorAssignment):
                self._train_discriminator(assignment)
            taken = sum(report.uploaded for report in self.reports)
            if self._is_stopped() or (rounds is not None and taken >= rounds):
                return self._report(assignment, client_id)

    def _is_stopped(self) -> bool:
        return self._stop is not None and self._stop.is_set()

    def _check(self, card: FederationCard, prototype: Prototype | None) -> None:
        """Refuse what would fail in the first round, while nobody waits for this device."""
        if card.local is not None:
            methods.check(card.local, self.samples.names)
        self.resources.check(card.task)
        if prototype is not None:
            self._check_inputs(prototype)
        if prototype is None or (self.model is None and is_document(prototype.architecture)):
            return  # the service says why; or only members may fetch it
        module = self._network_of(prototype, card.task)
        if self.model is not None:
            trial.check_tensors(module, card, prototype)
        if card.local is not None:
            self._try(module, card.local, prototype)

    def _try(self, module: nn.Module, plan: LocalPlan, prototype: Prototype) -> None:
        """Train a step on a copy, once a run; of a training of the user's own, see that it can keep the plan."""
        own, samples = self.resources.own, self.samples
        if own is not None and isinstance(samples, Handed):
            own.check(plan, samples)
        elif not self._tried:
            device = self.resources.device
            self.progress.say(f"a step is tried with {min(plan.batch_size, len(self.samples))} samples on {device}")
            self._pass_seconds = trial.attempt(module, samples, plan, device, prototype, self.resources.wishes)
            self._tried = True

    def _check_inputs(self, prototype: Prototype) -> None:
        """Refuse several inputs a sample where the network is built by its name: such take one."""
        names = self.samples.names
        if names and self.model is None:
            kind = "a network document" if is_document(prototype.architecture) else "an architecture"
            raise named.several(names, f"{kind} ({prototype.architecture})")

    def _network_of(self, prototype: Prototype, task: Task) -> nn.Module:
        """Return the network that is trained, the same one as long as the prototype's is."""
        network = (prototype.architecture, json.dumps(prototype.options, sort_keys=True))
        if self._module is None or network != self._network:
            self._check_inputs(prototype)
            if self.model is None:
                self.resources.have(prototype.architecture)
            module = models.make(prototype, task, self.model)
            if self.samples.names:
                named.check_arguments(module, self.samples.names)
            self._module, self._network = module, network
        return self._module

    def _next(self) -> Assignment:
        """Ask what to do; never in a hot loop, even if the service does not hold the answer back."""
        asked = time.monotonic()
        try:
            identity.renew(self.client, self.folder)
            assignment = self.client.assignment(self._patience, heartbeats=True)
        except Unauthorized as error:
            raise identity.refused(error, self.folder) from error
        self._patience = WAIT_SECONDS if self._stop is None else _STOPPABLE_WAIT
        if not isinstance(assignment, WaitAssignment):
            self._quick_waits = 0
        else:
            self.progress.say(f"{assignment.client_name}: waiting: {assignment.reason}")
            self._quick_waits = self._quick_waits + 1 if time.monotonic() - asked < 1 else 0
            if self._quick_waits:
                self._sleep(min(5.0, 0.1 * 2 ** min(self._quick_waits, 6)))
        return assignment

    def _deliver(self, pending: Pending, url: str, what: str) -> str | None:
        """Deliver what is pending; tell it, and return why, when the service no longer wants it."""
        with traces.span("upload", {"potstill.bytes": self.folder.pending_file.stat().st_size}):
            reason = self._deliveries.deliver(pending, url)
        if reason:
            self.progress.say(f"{what} is no longer wanted: {reason}")
        return reason

    # Rounds

    def _train(self, assignment: TrainAssignment) -> None:
        round_, seconds = assignment.round, 0.0
        if round_.buffered and self._sent_earlier(assignment):
            return
        # heartbeats go on while the update is on its way
        with span("round", assignment), Heartbeats(self.client, assignment, self.samples) as heartbeats:
            pending = self._pending_update(assignment)
            if pending is None:
                ready, mask = self._secure.prepare(assignment)
                if not ready:
                    return
                started = time.monotonic()
                pending = self._train_round(assignment, heartbeats, mask)
                seconds = time.monotonic() - started
            reason = self._deliver(pending, assignment.upload_url, f"round {round_.index}: the update")
        report = RoundReport(
            index=round_.index,
            round_id=round_.id,
            loss=pending.loss,
            accuracy=pending.accuracy,
            steps=pending.steps,
            num_samples=pending.num_samples,
            metrics=pending.metrics,
            before=pending.before,
            after=pending.after,
            seconds=seconds,
            uploaded=reason is None,
            reason=reason,
            epsilon=pending.epsilon,
        )
        self.reports.append(report)
        if self.on_round is not None:
            self.on_round(report)

    def _sent_earlier(self, assignment: TrainAssignment) -> bool:
        """Deliver what a killed run trained from an earlier model; return whether there was such, to ask what is next.

        It may still count.
        """
        earlier = self.folder.pending()
        if earlier is None or earlier.kind != "update" or earlier.purpose == assignment.round.id:
            return False
        try:
            self._deliver(earlier, update_url(earlier.purpose), "an update of before")
        except NotFound:
            self.folder.drop_pending()
        return True

    def _pending_update(self, assignment: TrainAssignment) -> Pending | None:
        """Return the update that is pending for this very round, if there is one.

        One for an earlier round is sent again if a method's state hangs on it: the answer alone tells whether it
        counted, and with it which state is right.
        """
        pending = self._pending("update", assignment.round.id, assignment.model.id)
        if pending is not None:
            asked = None if assignment.secure is None else assignment.secure.session
            if pending.session == asked:
                return pending
            self.folder.drop_pending()  # it is masked for a session that is over
            return None
        earlier, proposal = self.folder.pending(), self.folder.memory.proposal()
        if earlier is None or earlier.kind != "update" or proposal is None:
            return None
        if proposal.round == earlier.purpose != assignment.round.id:
            try:
                self._deliveries.deliver(earlier, update_url(earlier.purpose))
            except NotFound:
                self.folder.drop_pending()
        return None

    def _train_round(self, assignment: TrainAssignment, heartbeats: Heartbeats, mask: Mask | None) -> Pending:
        """Train the round's model and store the update as pending."""
        module = self._network_of(assignment.prototype, assignment.task)
        self._try(module, assignment.local, assignment.prototype)
        self._say_unmeasured(assignment)
        heartbeats.expect(self._pass_seconds)
        title = f"{assignment.client_name} round {assignment.round.index}/{assignment.round.total}"
        bar = self.progress.bar if self.resources.own is None else self.progress.reports
        with bar(title, assignment.local.epochs) as told:
            try:
                return train_round(assignment, self.resources, module, self._hooks(heartbeats, told), mask)
            finally:
                heartbeats.rest()

    def _say_unmeasured(self, assignment: TrainAssignment) -> None:
        """Say once which figures this device does not tell, and what to install."""
        plan = assignment.evaluate
        for why in () if plan is None else metrics.missing(plan.metrics):
            if why not in self._unmeasured:
                self._unmeasured.add(why)
                self.progress.say(f"{assignment.client_name}: not measured here: {why}")

    def _hooks(self, heartbeats: Heartbeats, told: Callable[..., None]) -> Hooks:
        def on_step(number: int) -> None:
            heartbeats.step(number)
            if self._is_stopped():
                raise Stopped

        def on_report(report: Report) -> None:
            heartbeats.reported(report.step, report.of)
            told(report)

        return Hooks(heartbeats.between(told), on_step, heartbeats.passing, on_report, heartbeats.over)

    # Before the rounds

    def _train_gan(self, assignment: TrainGanAssignment) -> None:
        plan, model = assignment.plan, assignment.model
        with span("generator", assignment):
            pending = self._pending("gan", model.id, model.id)
            if pending is None:
                title = f"{assignment.client_name} generator {assignment.gan_round}/{plan.rounds}"
                with self.progress.bar(title, plan.epochs) as on_epoch:
                    pending = train_gan_round(assignment, self.resources, on_epoch=on_epoch)
            self._epsilon_before = pending.epsilon
            self._deliver(pending, assignment.upload_url, f"the generator of round {assignment.gan_round}")

    def _train_discriminator(self, assignment: DiscriminatorAssignment) -> None:
        generator = assignment.generator.model
        with span("discriminator", assignment):
            pending = self._pending("discriminator", generator.id, generator.id)
            if pending is None:
                with self.progress.bar(f"{assignment.client_name} discriminator", assignment.plan.epochs) as on_epoch:
                    pending = train_against(assignment, self.resources, on_epoch=on_epoch)
            self._epsilon_before = pending.epsilon
            self._deliver(pending, assignment.upload_url, "the discriminator")

    def _pending(self, kind: Kind, purpose: str, base: str) -> Pending | None:
        """Return what is trained and not delivered, if it is this."""
        pending = self.folder.pending()
        if pending is None or (pending.kind, pending.purpose, pending.base) != (kind, purpose, base):
            return None
        return pending

    # The end

    def _finish(self, assignment: DoneAssignment, client_id: str | None) -> RunReport:
        self.folder.drop_pending()
        path = None
        if assignment.model is not None:
            path = final_model(self.resources, assignment.model, assignment.base)
            if self.model is not None:
                module = self._network_of(assignment.prototype, assignment.task)
                models.load(module, path)
        self.progress.say(f"{assignment.client_name}: the federation is {assignment.state}")
        return self._report(assignment, client_id, assignment.accuracy, path)

    def _report(
        self,
        assignment: Assignment,
        client_id: str | None,
        accuracy: float | None = None,
        path: Path | None = None,
    ) -> RunReport:
        return RunReport(
            state=assignment.state,
            client_id=client_id,
            client_name=assignment.client_name,
            federation_id=assignment.federation_id,
            num_samples=len(self.samples),
            rounds=self.reports,
            accuracy=accuracy,
            model_path=path,
            epsilon_before=self._epsilon_before,
        )
