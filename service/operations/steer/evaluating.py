"""What devices measured of the models that a round began with, noted with the round and with the models."""

from collections import defaultdict
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from contract.bodies import stored
from contract.evaluation import Evaluation
from service.domain.evaluation import main_median, of_models
from service.operations.progress import reading
from service.persistence.tables import ClientRow, ModelRow, ParticipantRow, RoundRow, UpdateRow


def note(session: Session, round_: RoundRow, metrics: dict[str, Any]) -> dict[str, float]:
    """Put `evaluation`, model name -> figures of all devices together, into a round's figures.

    Its base models keep the median of the task's main metric, as `devices`: the first one, where several rounds began
    with the same model.

    Returns:
        the medians of models that were not measured before, by name.
    """
    config = reading.config_for(session, round_)
    if config.rounds.evaluate is None:
        return {}
    found, new = of_models(_told(session, round_), config), {}
    for name, figures in found.items():
        base = session.get_one(ModelRow, round_.base_models[name])
        median = main_median(figures)
        if median is not None and "devices" not in base.metrics:
            base.metrics = base.metrics | {"devices": median}
            new[name] = median
    if found:
        metrics["evaluation"] = found
    return new


def _told(session: Session, round_: RoundRow) -> dict[str, dict[str, Evaluation]]:
    """Return model name -> device -> its figures, of those whose updates are fused."""
    query = (
        select(ParticipantRow.prototype, ClientRow.name, UpdateRow.metrics)
        .join(UpdateRow, (UpdateRow.client_id == ParticipantRow.client_id) & (UpdateRow.round_id == round_.id))
        .join(ClientRow, ClientRow.id == ParticipantRow.client_id)
        .where(ParticipantRow.round_id == round_.id, UpdateRow.excluded.is_(None))
        .where(UpdateRow.begun_in == round_.id)  # of a later one its device was sent an older model
    )
    found: dict[str, dict[str, Evaluation]] = defaultdict(dict)
    for prototype, client, metrics in session.execute(query):
        if metrics and metrics.get("evaluation"):
            found[prototype][client] = stored(Evaluation, metrics["evaluation"])
    return found
