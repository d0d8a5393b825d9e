"""Ensembles of rounds and predictions with them, as they are asked for and shown."""

from typing import Annotated, Any

from pydantic import Field

from contract.bodies import LISTED, Part
from contract.bounds import ROUNDS, Label, Reference
from contract.recipes import parts
from contract.wire.common import Digest, Request, Response, Timestamp
from contract.wire.federations import Task
from contract.wire.rounds import JobProgress, JobState


class Network(Part):
    """A network and the digest of its weights."""

    architecture: str
    options: dict[str, Any] = Field(default_factory=dict)
    digest: Digest
    base: Digest | None = Field(
        None,
        exclude_if=lambda value: value is None,
        description="of the tensors that rounds do not move, where the weights are the others alone",
    )

    def digests(self) -> set[str]:
        """Return the digests of its files."""
        return {self.digest} if self.base is None else {self.digest, self.base}


class Member(Part):
    """One model of an ensemble."""

    name: str = Field(description="a client's, or what else it is: `mean of main`, `main of round 3`")
    client: str | None = Field(None, description="whose update it is, if it is one")
    network: Network
    size: int = Field(description="bytes of its weights")
    num_samples: int = Field(1, description="n_k, where the weighting counts samples; 1 of what is no client")
    group: bool = Field(False, description="it is a group's mean")
    counted: dict[str, float] | None = Field(
        None, description="of a group: the logarithm of what its clients count together, by the weighting's factor"
    )
    discriminator: Digest | None = Field(None, description="its client's, where the weighting reads scores")


class Scorer(Part):
    """How discriminators score samples."""

    architecture: str
    options: dict[str, Any] = Field(default_factory=dict)
    input_range: Annotated[tuple[float, float], LISTED] = Field(description="data values that map to -1 and 1")


class EnsembleDocument(Part):
    """An ensemble: its members, what each counts sample by sample, and how their outputs become one."""

    task: Task
    weigh: parts.Weigh
    combine: parts.Combine
    members: list[Member]
    scorer: Scorer | None = Field(None, description="where the weighting reads discriminators")

    def digests(self) -> set[str]:
        """Return the digests of all that predicting with it reads."""
        found = {digest for member in self.members for digest in member.network.digests()}
        return found | {member.discriminator for member in self.members if member.discriminator is not None}


class PredictionDocument(Part):
    """What a prediction is made with: one model, or an ensemble."""

    task: Task
    dataset: Digest
    model: Network | None = None
    ensemble: EnsembleDocument | None = None

    def digests(self) -> set[str]:
        """Return the digests of all that it reads."""
        found = {self.dataset}
        if self.model is not None:
            found |= self.model.digests()
        return found if self.ensemble is None else found | self.ensemble.digests()


class Ensemble(Response):
    """A round's models that predict together: who, with what weights, and how their outputs become one."""

    id: str
    federation_id: str
    round_id: str
    round: int
    document: EnsembleDocument = Field(
        description="`members` by digest, in the order in which they are added up; `weigh` is what each counts, sample "
        "by sample, `combine` how outputs become one, both as in the recipe; `scorer` runs the members' discriminators"
    )
    accuracy: float | None = Field(None, description="on the federation's test set, where teachers were asked there")
    measured: float | None = Field(None, description="the task's main metric there")
    size: int = Field(description="bytes of the members' weights")
    removed: list[Digest] = Field(description="named by the document, no longer stored")
    predicts: bool = Field(description="whether the service can predict with it")
    reason: str | None = Field(None, description="why it cannot")
    created_at: Timestamp
    url: str = Field(description="where it is served as one file", examples=["/v1/rounds/rnd_01…/ensemble/bundle"])


class PredictionRequest(Request):
    """What is to be predicted, and with what."""

    dataset: Label = Field(description="a registered data set: its name, id or digest", examples=["digits"])
    ensemble: bool = Field(False, description="with a round's ensemble; false: with one global model")
    round: int | None = Field(
        None,
        ge=1,
        le=ROUNDS,
        description="of which published round; null: what devices get now, or the newest ensemble that is kept",
    )
    prototype: Reference | None = Field(
        None, description="whose global model, where there are several; null: the server's, or the only"
    )


class Prediction(Response):
    """Predictions of one data set: asked for, under way or made. `state` and what follows are its job's."""

    id: str
    federation_id: str
    job_id: str
    state: JobState
    dataset: str = Field(description="name of the data set, as it was then")
    dataset_digest: Digest
    num_samples: int
    ensemble: bool
    round: int | None = Field(None, description="of which round the ensemble or the model is; 0: the first model")
    model: str | None = Field(None, description="id of the model; null for an ensemble")
    digest: Digest | None = Field(None, description="of the file, once it is made")
    size: int | None = None
    accuracy: float | None = Field(None, description="share of samples whose first largest logit is the label's")
    measured: float | None = Field(None, description="the task's main metric, where the set has labels")
    metrics: dict[str, Any] = Field(default_factory=dict, description="of an ensemble `teacher_weights` and `ensemble`")
    progress: JobProgress | None = None
    error: str | None = None
    detail: str | None = None
    created_at: Timestamp
    finished_at: Timestamp | None = None
    removed_at: Timestamp | None = Field(None, description="when retention removed the file")
    url: str = Field(examples=["/v1/predictions/prd_01…/file"])
