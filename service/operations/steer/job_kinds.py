"""What the end of a job changes: one row for each of `contract.jobs`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlalchemy.orm import Session

from service.operations.steer import first_models, fusion, generator_models, halting, labelling, predicting, scores
from service.operations.store.outcome import Outcome
from service.persistence.tables import FederationRow, JobRow


@dataclass(frozen=True)
class Ending:
    """What is done in the transaction that ends a job of one kind, with its federation locked.

    Attributes:
        publish: makes its result visible.
        fail: it has failed for good, for a reason `code: detail`; default: the federation waits, or has failed.
        retry: somebody wants it done again; default: a federation that has failed begins again.
    """

    publish: Callable[[Session, FederationRow, JobRow, Outcome], None]
    fail: Callable[[Session, FederationRow, JobRow, str], None] = halting.fail
    retry: Callable[[Session, FederationRow, JobRow], None] = halting.retry


ENDINGS: Mapping[str, Ending] = {
    "initialize": Ending(first_models.publish),
    "generator": Ending(generator_models.publish, retry=generator_models.retry),
    "score": Ending(scores.publish, fail=scores.fail, retry=scores.retry),
    "round": Ending(fusion.publish, fail=fusion.fail, retry=fusion.retry),
    "labels": Ending(labelling.publish, fail=labelling.fail, retry=labelling.retry),
    "predict": Ending(predicting.publish, fail=predicting.fail, retry=predicting.retry),
}
