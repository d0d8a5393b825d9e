"""What jobs that make the generator hand over: the average of a round of its training, or the generator itself."""

from typing import Any

from sqlalchemy.orm import Session

from contract.recipes.parts import GeneratorFederated
from service.operations.progress import jobs, lifecycle, reading
from service.operations.steer import halting, new_models
from service.operations.store.outcome import Outcome
from service.persistence.tables import FederationRow, JobRow


def publish(session: Session, federation: FederationRow, job: JobRow, outcome: Outcome) -> None:
    """Publish what clients train next: the average of their round, or at its end the generator and its samples.

    Where the generator makes data and no weighting reads discriminators, rounds are next.
    """
    recipe = reading.config_of(federation).recipe
    discriminators = recipe.discriminators
    assert discriminators is not None
    generator, plan = discriminators.generator, discriminators.plan
    parents: list[str] = []
    if isinstance(generator, GeneratorFederated):
        parents = _averaged(session, federation)
        if reading.GAN in outcome.files:
            key, upcoming = reading.GAN, federation.gan_round
            made: dict[str, Any] = {"round_index": upcoming, "parents": parents, "provenance_id": outcome.provenance_id}
            new_models.add_model(session, federation, key, outcome.files[key], key, **made)
            lifecycle.open_gan_round(session, federation, upcoming, generator.deadline_seconds)
            return
    networks = {
        reading.GENERATOR: (
            generator.architecture,
            generator.options,
            {name: value for name, value in outcome.metrics.items() if name != "networks"}
            | _of_network(outcome, reading.GENERATOR),
        ),
        reading.DISCRIMINATOR: (plan.architecture, plan.options, _of_network(outcome, reading.DISCRIMINATOR)),
        reading.SAMPLES: (None, {}, {}),
    }
    for name, file in outcome.files.items():
        architecture, options, metrics = networks[name]
        new_models.add_model(
            session,
            federation,
            name,
            file,
            name,
            architecture=architecture,
            options=options,
            metrics=metrics,
            parents=parents if name == reading.GENERATOR else [],
            provenance_id=outcome.provenance_id,
        )
    if not recipe.reads_scores:
        lifecycle.move(session, federation, "run")
        return
    federation.collect_deadline_at = jobs.later(discriminators.deadline_seconds)
    lifecycle.move(session, federation, "collect")


def _of_network(outcome: Outcome, name: str) -> dict[str, Any]:
    """Return what a network costs, as a model's figures have it."""
    effort = outcome.metrics.get("networks", {}).get(name)
    return {} if effort is None else {"network": effort}


def _averaged(session: Session, federation: FederationRow) -> list[str]:
    """End the round of the federated generator whose average is here; return the digests that it was made of."""
    parents = [row.digest for _, row in reading.gan_updates(session, federation, federation.gan_round)]
    federation.gan_round += 1
    return parents


def retry(session: Session, federation: FederationRow, job: JobRow) -> None:
    """Put a failed federation back to its first models, or to the round of the generator that was averaged."""
    halting.put_back(session, federation, "revive_generator" if federation.gan_round > 0 else "revive")
