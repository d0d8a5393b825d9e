"""Which models devices get next, by an operator's word: promotion of one, rollback of all."""

from collections.abc import Callable, Mapping

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from contract.ids import new_id
from contract.tasks import measured_of
from contract.tensors import Header, TensorError, compare
from contract.updates import BASE_KEY, FEATURES_KEY
from contract.wire.federations import Rollback
from contract.wire.rounds import Promotion
from service.domain import carried
from service.domain.errors import DomainError, invalid_field, not_found
from service.operations.ledger import after_commit, audit, garbage, locks
from service.operations.ledger.clock import now
from service.operations.progress import jobs, lifecycle, reading, secure
from service.operations.store import models
from service.persistence.tables import CurrentModelRow, FederationRow, ModelRow, ParticipantRow, RoundRow, UpdateRow

_STATES = ("running", "paused", "finished")
Targets = dict[str, str]
"""What is published under a name -> id of its model."""


# ----------------------------------------------------------------------------------------------------------- promotion
def promote(session: Session, model_id: str, request: Promotion, header_of: Callable[[str], Header]) -> ModelRow:
    """Make a model what devices of a prototype get next; again does nothing.

    Args:
        header_of: a blob's digest -> its header, to hold an imported model against the prototype.

    Raises:
        DomainError: not-found; removed; invalid-field; invalid-tensors; invalid-transition, also while a round is
            fused.
    """
    model = models.get(session, model_id)
    models.still_there(model)
    federation = _changeable(session, _federation_of(model, request))
    name = _prototype_of(federation, model, request)
    current = session.get_one(ModelRow, _current(session, federation)[name])
    if current.id == model.id or (model.federation_id is None and current.digest == model.digest):
        return current
    if model.federation_id is None:
        _check_fit(header_of(model.digest), header_of(current.digest))
        model = _adopt(session, federation, model, current)
    dropped = carried.of_another_path(reading.carried_state(session, federation.id).keys(), name)
    _switch(session, federation, {name: model.id}, dropped, f"model {model.id} was promoted")
    audit.record(session, "model.promote", model.id, federation=federation.id, prototype=name, instead_of=current.id)
    measured = measured_of(model.metrics)
    if measured is not None and len(reading.config_of(federation).published) == 1:
        federation.accuracy = measured
    return model


def _federation_of(model: ModelRow, request: Promotion) -> str:
    if model.federation_id is None:
        if request.federation is None:
            raise invalid_field("federation", "this model was imported; say which federation is to have it")
        return request.federation
    if request.federation not in (None, model.federation_id):
        raise invalid_field("federation", "the model belongs to another one; export its weights and import them")
    if model.role not in ("initial", "global", "imported"):
        raise invalid_field("model", f"a {model.role} model is nothing that devices train")
    return model.federation_id


def _prototype_of(federation: FederationRow, model: ModelRow, request: Promotion) -> str:
    names = [each.name for each in reading.config_of(federation).published]
    if model.federation_id is not None:
        name = model.prototype
        if request.prototype not in (None, name):
            raise invalid_field("prototype", f"the model is one of {name!r}")
    else:
        name = request.prototype or (names[0] if len(names) == 1 else None)
    if name not in names:
        raise invalid_field("prototype", f"name one of {', '.join(names)}")
    return name


def _check_fit(header: Header, current: Header) -> None:
    try:
        compare(header, current)
    except TensorError as error:
        detail = f"the imported model is not one of this prototype: {error.detail}"
        raise DomainError("invalid-tensors", detail, **error.members) from None
    for key in (FEATURES_KEY, BASE_KEY):
        if current.metadata.get(key) != header.metadata.get(key):
            wanted = f"{key!r} = {current.metadata.get(key)!r} as the current one"
            raise invalid_field("model", f"its metadata must have {wanted}")


def _adopt(session: Session, federation: FederationRow, model: ModelRow, current: ModelRow) -> ModelRow:
    """Return an imported model as one of the federation's own, which its devices may read."""
    locks.hold_blobs(session)
    row = ModelRow(
        id=new_id("model"),
        federation_id=federation.id,
        round_index=federation.round_index,
        prototype=current.prototype,
        role="imported",
        name=model.name,
        digest=model.digest,
        size=model.size,
        architecture=current.architecture,
        options=current.options,
        parents=[model.digest],
        metrics={},
        created_at=now(),
    )
    session.add(row)
    session.flush()
    return row


# ------------------------------------------------------------------------------------------------------------ rollback
def rollback(session: Session, federation_id: str, request: Rollback) -> FederationRow:
    """Make the models that were current after a round current again, of all prototypes; again does nothing.

    What the recipe keeps from round to round goes back with them, as `service.domain.carried` says. Rounds are numbered
    on: history stays.

    Raises:
        DomainError: not-found; invalid-field, when there is no such round; invalid-transition, also while a round is
            fused.
    """
    federation = _changeable(session, federation_id)
    index = _index(session, federation, request)
    targets = _after(session, federation, index)
    current = _current(session, federation)
    changed = {name: id_ for name, id_ in targets.items() if current[name] != id_}
    if changed:
        made = made_in(session, federation)
        _switch(session, federation, changed, carried.too_new(made, index), f"rolled back to round {index}")
        federation.accuracy = _measured(session, federation, index, targets)
        audit.record(session, "federation.rollback", federation.id, federation=federation.id, round=index)
    return federation


def _rounds(session: Session, federation: FederationRow) -> dict[int, RoundRow]:
    rows = session.scalars(select(RoundRow).where(RoundRow.federation_id == federation.id))
    return {row.index: row for row in rows}


def _index(session: Session, federation: FederationRow, request: Rollback) -> int:
    rounds = _rounds(session, federation)
    if request.round is not None:
        row = rounds.get(request.round)
        if request.round and (row is None or row.state == "collecting"):
            closed = [index for index, each in rounds.items() if each.state != "collecting"]
            raise invalid_field("round", f"no closed round {request.round}; there are 0 to {max(closed, default=0)}")
        return request.round
    assert request.rounds is not None
    published = sorted(index for index, row in rounds.items() if row.state == "published")
    if request.rounds > len(published):
        raise invalid_field("rounds", f"only {len(published)} rounds were published")
    return published[-1 - request.rounds] if request.rounds < len(published) else 0


def _after(session: Session, federation: FederationRow, index: int) -> Targets:
    """Return the models that were current after a round; those after round 0 are the first ones.

    Raises:
        DomainError: invalid-field, when one of them is gone.
    """
    names = [each.name for each in reading.config_of(federation).published]
    if index == 0:
        rows = session.scalars(
            select(ModelRow).where(ModelRow.federation_id == federation.id, ModelRow.role == "initial")
        )
        found = {str(row.prototype): row.id for row in rows}
    else:
        round_ = _rounds(session, federation)[index]
        found = {**round_.base_models, **round_.models}
    for name in names:
        row = session.get(ModelRow, found[name]) if name in found else None
        if row is None or row.removed_at is not None:
            raise invalid_field("round", f"the model of {name!r} after round {index} is no longer there")
    return {name: found[name] for name in names}


def made_in(session: Session, federation: FederationRow) -> dict[str, int]:
    """Return name -> round in which it was made, of what the recipe has kept."""
    state = reading.carried_state(session, federation.id)
    return {name: session.get_one(ModelRow, id_).round_index or 0 for name, id_ in state.items()}


def _measured(session: Session, federation: FederationRow, index: int, targets: Targets) -> float | None:
    """Return the main figure that goes with the models after a round: the round's own, else the mean of theirs."""
    round_ = _rounds(session, federation).get(index)
    of_round = None if round_ is None else measured_of(round_.metrics)
    if of_round is not None:
        return of_round
    found = [measured_of(session.get_one(ModelRow, id_).metrics) for id_ in targets.values()]
    known = [value for value in found if value is not None]
    return sum(known) / len(known) if known else None


# ------------------------------------------------------------------------------------------------------------- shared
def _changeable(session: Session, federation_id: str) -> FederationRow:
    """Return a federation, locked, whose current models an operator may change now.

    Raises:
        DomainError: not-found, invalid-transition.
    """
    if session.get(FederationRow, federation_id) is None:
        raise not_found("federation", federation_id)
    federation = reading.locked(session, federation_id)
    if federation.state not in _STATES:
        detail = f"the models of a federation that is {federation.state} cannot be changed"
        raise DomainError("invalid-transition", detail, state=federation.state)
    busy = select(RoundRow).where(RoundRow.federation_id == federation.id, RoundRow.state == "aggregating")
    fused = session.scalars(busy.limit(1)).first()
    if fused is not None:
        raise DomainError(
            "invalid-transition",
            f"round {fused.index} is being fused; wait until it is published, or cancel its job",
            state=fused.state,
        )
    return federation


def _current(session: Session, federation: FederationRow) -> Targets:
    current = reading.current_models(session, federation.id)
    names = [each.name for each in reading.config_of(federation).published]
    return {name: current[reading.prototype_key(name)] for name in names}


def make_current(session: Session, federation: FederationRow, targets: Mapping[str, str]) -> None:
    """Make models what devices get next."""
    for name, id_ in targets.items():
        key = reading.prototype_key(name)
        session.merge(CurrentModelRow(federation_id=federation.id, key=key, model_id=id_))
    session.flush()


def drop_state(session: Session, federation: FederationRow, names: set[str]) -> None:
    """Keep no longer what a recipe has kept under some names; the files stay as long as retention has them."""
    for name in names:
        session.execute(
            delete(CurrentModelRow).where(
                CurrentModelRow.federation_id == federation.id, CurrentModelRow.key == reading.state_key(name)
            )
        )
    session.flush()


def _switch(
    session: Session, federation: FederationRow, targets: Mapping[str, str], dropped: set[str], why: str
) -> None:
    """Change current models and begin the round that collects again: what was trained from the others cannot count."""
    make_current(session, federation, targets)
    drop_state(session, federation, dropped)
    newest = reading.newest_round(session, federation)
    if newest is not None and newest.state == "collecting":
        _restart(session, federation, newest, why)
    after_commit.touch(session, federation)


def _restart(session: Session, federation: FederationRow, round_: RoundRow, why: str) -> None:
    """Begin a collecting round again from the current models: the same clients, a fresh deadline, no updates.

    It keeps its number, so that the rounds that were planned stay as many.
    """
    lifecycle.let_go(session, round_)
    session.execute(delete(UpdateRow).where(UpdateRow.round_id == round_.id))
    for row in session.scalars(select(ParticipantRow).where(ParticipantRow.round_id == round_.id)):
        row.asked_at = now()
        row.fetched_at = row.heard_at = row.moved_at = row.silent_at = row.lost_at = row.progress = None
    round_.base_models = lifecycle.bases(session, federation, ahead=round_.waits_for is not None)
    round_.deadline_at = jobs.later(reading.config_for(session, round_).rounds.deadline_seconds)
    round_.extensions, round_.restarts = 0, round_.restarts + 1
    round_.reason = f"restarted: {why}"
    secure.begin(session, federation, round_)


def take_back(session: Session, federation: FederationRow, round_: RoundRow, clients: set[str]) -> None:
    """Withdraw what a failed round handed over, if one of these clients has a share in it: it is averaged again.

    The round that went ahead with it begins again once the new averages are there.

    Args:
        clients: ids of those that are left out from now on.
    """
    participants = session.scalars(select(ParticipantRow).where(ParticipantRow.round_id == round_.id))
    if not any(row.client_id in clients and row.prototype in round_.models for row in participants):
        return
    old = [session.get_one(ModelRow, id_) for id_ in round_.models.values()]
    make_current(session, federation, {name: round_.base_models[name] for name in round_.models})
    round_.models, round_.groups_published_at = {}, None
    follower = reading.newest_round(session, federation)
    if follower is not None and follower.waits_for == round_.id:
        _restart(session, federation, follower, f"clients were left out of round {round_.index}")
        follower.base_models = {}
    garbage.let_go(session, old)
    for model in old:
        session.delete(model)
    after_commit.touch(session, federation)
    session.flush()


def check_same_bases(session: Session, federation: FederationRow, round_: RoundRow) -> None:
    """Refuse to fuse a failed round whose base models, or models that it handed over, are no longer the current ones.

    Raises:
        DomainError: invalid-transition.
    """
    if round_.base_models | round_.models != _current(session, federation):
        detail = f"the models that round {round_.index} started from were replaced; resume the federation instead"
        raise DomainError("invalid-transition", detail, state=round_.state)
