"""Why a round came out as it did, as it is shown."""

from typing import Literal

from pydantic import Field

from contract.wire.common import Response

FlagKind = Literal["opposes", "idle", "copies", "disagrees"]


class Flag(Response):
    """What is odd about a client."""

    kind: FlagKind = Field(
        description="opposes: its change points against the others'. idle: it sent the round's model back. copies: its "
        "change is another client's. disagrees: its votes agree far less with what the samples are than the others' do"
    )
    detail: str = Field(description="in words, with the numbers")
    seen: int = Field(ge=1, description="in how many of the last three rounds that it took part in, this one included")


class ExplainedClient(Response):
    """What there is to say of one client; what the round does not let be known is null."""

    name: str
    weight: float | None = Field(None, description="share in the average of its prototype")
    cosine: float | None = Field(None, description="of its change and the mean change of all others")
    to_mean: float | None = Field(None, description="||update - mean|| / ||model||")
    pull: float | None = Field(None, description="||mean - mean without it|| / ||mean - model||")
    accuracy: float | None = Field(None, description="share of the samples on which its votes agree")
    beyond_chance: float | None = Field(
        None,
        description="agreement beyond chance, of what its votes could reach: 1 for a client that is right on the few "
        "classes that it knows, 0 for one that guesses (kappa / kappa_max)",
    )
    by_class: list[float | None] | None = Field(
        None, description="of each class's samples, the share that it agrees on"
    )
    trust: list[float | None] | None = Field(None, description="its mean weight as a teacher on what became each class")
    decides: float | None = Field(None, description="share of the samples on which it counts most as a teacher")
    relabels: float | None = Field(None, description="share of the pseudo-labels that would be others without it")
    accuracy_without: float | None = Field(None, description="what `without` would reach if it were left out")
    flags: list[Flag] = []


class Votes(Response):
    """What the clients' models were asked about."""

    set: Literal["test", "unlabeled"]
    samples: int
    compared_with: Literal["labels", "others"] = Field(description="the set's labels, or what the others say together")


class Without(Response):
    """Whose accuracy is meant by `accuracy_without`."""

    model: Literal["average", "ensemble"]
    accuracy: float = Field(description="of all clients together, on the same samples")


class Vote(Response):
    """What a client's model says of a sample."""

    client: str
    vote: int = Field(description="the class")
    weight: float = Field(description="as a teacher of this sample, or its share in the average")


class Image(Response):
    """A sample's pixels, the darkest of all that are shown 0, the lightest 255; large images are thinned out."""

    channels: Literal[1, 3]
    height: int = Field(ge=1, le=32)
    width: int = Field(ge=1, le=32)
    pixels: str = Field(max_length=4096, description="base64 of height x width x channels bytes")


class Sample(Response):
    """One of the images of the server over which the clients are most divided."""

    row: int = Field(description="in the set that `votes` names")
    label: int | None = Field(None, description="the set's own, of the test set")
    together: int | None = Field(None, description="what the ensemble says")
    votes: list[Vote] = Field(description="of at most 64 clients, those that count most first")
    image: Image | None = Field(None, description="to operators")


class Explanation(Response):
    """Why a round came out as it did: what each client did to it."""

    round_id: str
    round: int
    federation_id: str
    votes: Votes | None = None
    without: Without | None = None
    clients: list[ExplainedClient] = Field(description="those that count, by name")
    samples: list[Sample] = Field(default=[], description="of images, in the newest 20 rounds")
    seconds: float | None = Field(None, description="that the job took for it")
