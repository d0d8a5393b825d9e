"""What a device has to do now: read from the database alone, so that any replica gives the same answer."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from contract.federation import FederationConfig
from contract.partition import SENT_BASE
from contract.recipes.parts import GeneratorFederated
from contract.recipes.recipe import discriminator_link
from contract.updates import BASE, extras
from contract.wire import devices as wire
from contract.wire.federations import TERMINAL_STATES, ModelRef
from service.domain.buffered import Work
from service.operations.fleet import clients, generators, secure_assignments, updates
from service.operations.fleet.discriminators import discriminator_of
from service.operations.fleet.updates import update_of
from service.operations.progress import buffered, participants, reading
from service.operations.store import models
from service.persistence.tables import ClientRow, FederationRow, ModelRow, ParticipantRow, RoundRow

_WAITING = {
    "created": "the operator has not started the federation",
    "preparing": "the service makes the first models",
    "collecting_discriminators": "waiting for the other clients' discriminators",
    "scoring": "the service scores the discriminators",
    "paused": "the federation is paused",
}


def together(session: Session, client_ids: Collection[str]) -> None:
    """Have what several clients are told read once for all; for a session that only reads, and ends at once."""
    reading.at_once(session)
    here = session.scalars(select(ClientRow).where(ClientRow.id.in_(client_ids))).all()
    for federation in {session.get_one(FederationRow, client.federation_id) for client in here}:
        round_ = reading.newest_round(session, federation)
        if round_ is not None:
            mine = ParticipantRow.round_id == round_.id, ParticipantRow.client_id.in_(client_ids)
            session.scalars(select(ParticipantRow).where(*mine)).all()
            updates.remember(session, round_.id, client_ids)


def noting(session: Session, told: Collection[tuple[str, str]], seen: Collection[str]) -> None:
    """Begin a transaction that notes who was told to train in which round, and who was seen: read them at once."""
    reading.keep_rows(session)
    if told:
        participants.hold(session, [(Work.read(round_id).round_id, client_id) for round_id, client_id in told])
    if seen:
        session.scalars(select(ClientRow).where(ClientRow.id.in_(seen))).all()


def read(session: Session, client_id: str) -> tuple[wire.Assignment, int]:
    """Return a client's assignment, and the federation's version that it is true for."""
    client = clients.enrolled(session, client_id)
    federation = session.get_one(FederationRow, client.federation_id)
    config = reading.config_of(federation)
    common: dict[str, Any] = {
        "federation_id": federation.id,
        "federation_name": federation.name,
        "state": federation.state,
        "task": config.task,
        "prototype": config.prototype(client.prototype),
        "seed": federation.seed,
        "client_name": client.name,
    }
    return _decide(session, federation, client, config, common), federation.version


def _decide(
    session: Session, federation: FederationRow, client: ClientRow, config: FederationConfig, common: dict[str, Any]
) -> wire.Assignment:
    current = reading.current_models(session, federation.id)
    if federation.state in TERMINAL_STATES:
        return _done(session, federation, client.prototype, common)
    generator = current.get(reading.GENERATOR) if config.recipe.reads_scores else None
    if generator is not None and federation.state in ("collecting_discriminators", "scoring", "running"):
        delivered = discriminator_of(session, client.id)
        if delivered is None:
            return _discriminator(session, federation, config, session.get_one(ModelRow, generator), common)
        if delivered.rejected is not None:
            return wire.WaitAssignment(
                **common, reason=f"this client's discriminator was rejected: {delivered.rejected}"
            )
    if federation.state == "training_generator":
        return _gan(session, federation, client, config, common)
    if federation.state == "running":
        return _round(session, federation, client, config, common)
    return wire.WaitAssignment(**common, reason=_WAITING[federation.state])


def _done(session: Session, federation: FederationRow, prototype: str, common: dict[str, Any]) -> wire.Assignment:
    current = reading.current_models(session, federation.id)
    keys = {"model": reading.prototype_key(prototype), "base": reading.state_key(SENT_BASE.named(prototype))}
    rows = {what: session.get_one(ModelRow, current[key]) for what, key in keys.items() if key in current}
    parted = "base" in rows
    found = {what: models.reference(row, parted and what == "model") for what, row in rows.items()}
    return wire.DoneAssignment(**common, **found, accuracy=federation.accuracy)


def _gan(
    session: Session, federation: FederationRow, client: ClientRow, config: FederationConfig, common: dict[str, Any]
) -> wire.Assignment:
    assert config.recipe.discriminators is not None
    plan, index = config.recipe.discriminators.generator, federation.gan_round
    assert isinstance(plan, GeneratorFederated)
    deadline = federation.collect_deadline_at
    if deadline is None:
        return wire.WaitAssignment(**common, reason=f"the service averages the generators of round {index}")
    if generators.update_of(session, client.id, index) is not None:
        return wire.WaitAssignment(**common, reason=f"round {index} of the generator waits for other clients")
    model = session.get_one(ModelRow, reading.current_models(session, federation.id)[reading.GAN])
    return wire.TrainGanAssignment(
        **common,
        model=models.reference(model),
        plan=plan,
        privacy=config.local.privacy,
        gan_round=index,
        deadline_at=deadline,
        upload_url=f"/v1/federations/{federation.id}/gan",
    )


def _discriminator(
    session: Session, federation: FederationRow, config: FederationConfig, model: ModelRow, common: dict[str, Any]
) -> wire.Assignment:
    assert config.recipe.discriminators is not None
    return wire.DiscriminatorAssignment(
        **common,
        generator=wire.GeneratorRef(
            model=models.reference(model),
            architecture=model.architecture or "",
            options=model.options,
            input_range=model.metrics["input_range"],
        ),
        plan=config.recipe.discriminators.plan,
        privacy=config.local.privacy,
        link=discriminator_link(config.recipe),
        upload_url=f"/v1/federations/{federation.id}/discriminator",
    )


def _round(
    session: Session, federation: FederationRow, client: ClientRow, config: FederationConfig, common: dict[str, Any]
) -> wire.Assignment:
    round_ = reading.newest_round(session, federation)
    if round_ is None:
        wanted = config.rounds.quorum
        return wire.WaitAssignment(**common, reason=f"the first round opens when {wanted} clients are ready")
    if round_.state != "collecting":
        return wire.WaitAssignment(**common, reason=f"round {round_.index} is {round_.state}")
    if round_.buffered:
        return _at_once(session, federation, round_, client, common)
    participant = session.get(ParticipantRow, (round_.id, client.id))
    if config.rounds.secure is not None and participant is not None:
        asked = secure_assignments.read(session, federation, round_, participant, client, common)
        if asked is not None:
            return asked
    if updates.is_late(federation, round_, participant):
        return wire.WaitAssignment(**common, reason=f"the deadline of round {round_.index} has passed")
    if participant is None:
        return wire.WaitAssignment(**common, reason=f"round {round_.index} goes on without this client")
    if update_of(session, round_.id, client.id) is not None:
        return wire.WaitAssignment(**common, reason=f"round {round_.index} waits for other clients")
    if participant.prototype not in round_.base_models:
        reason = f"this client trains {participant.prototype!r} next, which round {round_.index - 1} still makes"
        return wire.WaitAssignment(**common, reason=reason)
    base, config = (
        session.get_one(ModelRow, round_.base_models[participant.prototype]),
        reading.config_for(session, round_),
    )
    beside = _extras(session, federation, participant.prototype)
    return wire.TrainAssignment(
        **common,
        **secure_assignments.of_training(session, federation, round_, participant),
        round=secure_assignments.round_of(federation, round_),
        model=models.reference(base, BASE in beside),
        extras=beside,
        local=config.work_of(federation.seed, round_.index, client.name, participant.prototype),
        evaluate=config.rounds.evaluate,
        upload_url=f"/v1/rounds/{round_.id}/update",
    )


def _at_once(
    session: Session, federation: FederationRow, buffer: RoundRow, client: ClientRow, common: dict[str, Any]
) -> wire.Assignment:
    """Return what a device does where rounds do not wait: it trains the newest model that there is."""
    begun = buffered.source_of(session, buffer)
    if begun is None or client.prototype not in begun.base_models:
        return wire.WaitAssignment(**common, reason=f"round {buffer.index} is {buffer.state}")
    most = buffered.plan_of(session, buffer).per_client
    if buffered.given(session, buffer, client.id) >= most:
        what = f"{most} of this client's updates are in round {buffer.index}, and it takes no more of one client"
        return wire.WaitAssignment(**common, reason=f"{what}; the next model is made of {buffer.needed} updates")
    work = Work(begun.id, buffered.turn_of(session, begun, client.id))
    base, config = session.get_one(ModelRow, begun.base_models[client.prototype]), reading.config_for(session, begun)
    beside = _extras(session, federation, client.prototype)
    return wire.TrainAssignment(
        **common,
        round=wire.AssignedRound(
            id=str(work),
            index=begun.index,
            total=config.rounds.total,
            deadline_at=buffered.until(session, begun),
            heartbeat_seconds=config.rounds.heartbeat_seconds,
            turn=work.turn,
            buffered=True,
        ),
        model=models.reference(base, BASE in beside),
        extras=beside,
        local=config.work_of(federation.seed, begun.index, client.name, client.prototype),
        evaluate=config.rounds.evaluate,
        upload_url=f"/v1/rounds/{work}/update",
    )


def _extras(session: Session, federation: FederationRow, prototype: str) -> dict[str, ModelRef]:
    """Return what the recipe sends beside the model."""
    sent = extras(reading.carried_state(session, federation.id), prototype)
    return {what: models.reference(session.get_one(ModelRow, id_)) for what, id_ in sent.items()}
