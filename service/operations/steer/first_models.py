"""What the first job of a federation makes: the models that devices start from."""

from sqlalchemy.orm import Session

from contract.tasks import measured_of
from service.operations.progress import jobs, lifecycle, reading
from service.operations.steer import new_models
from service.operations.store.outcome import Outcome
from service.persistence.tables import FederationRow, JobRow


def publish(session: Session, federation: FederationRow, job: JobRow, outcome: Outcome) -> None:
    """Publish the first models; a recipe that reads discriminators needs its generator next."""
    config = reading.config_of(federation)
    new_models.carry(session, federation, None, outcome)
    sent = new_models.sent(session, federation)
    for prototype in config.published:
        new_models.add_prototype_model(
            session,
            federation,
            prototype,
            outcome.files[prototype.name],
            "initial",
            round_index=0,
            metrics=new_models.figures_of(outcome, prototype.name) | ({"sent": sent} if sent else {}),
            provenance_id=outcome.provenance_id,
        )
    federation.accuracy = measured_of(outcome.metrics)
    if config.recipe.discriminators is None:
        lifecycle.move(session, federation, "run")
    else:
        jobs.enqueue(session, "generator", federation)
