"""What happened: the lines of the event feed."""

from typing import Any

from pydantic import Field

from contract.wire.common import Response, Timestamp

KINDS: dict[str, str] = {
    "federation.created": "a federation was created",
    "federation.started": "it begins: its first models are made",
    "federation.stage": "it went on to another stage, named in `state`",
    "federation.paused": "no round opens or closes",
    "federation.resumed": "rounds go on",
    "federation.finished": "its last round is over",
    "federation.cancelled": "an operator ended it",
    "federation.failed": "it cannot go on; `error` and `detail` say why",
    "federation.revived": "a failed one goes on",
    "federation.plan": "an operator changed its plan; the next round has it",
    "federation.join_token": "its join token was replaced",
    "client.enrolled": "a device joined",
    "client.declared": "a device's data set has another size, told by `num_samples`; `previous` is the one before",
    "client.revoked": "a device's token no longer works",
    "client.delivered": "a discriminator or a generator's update is here, named in `what`",
    "client.rejected": "a discriminator cannot be used; `detail` says why",
    "client.lost": "a device's heartbeats stopped while it trained for a round",
    "round.opened": "clients are asked for updates",
    "round.extended": "too few updates at the deadline; it got another one",
    "round.restarted": "its base models were replaced; it collects from the beginning",
    "round.reopened": "it collects again: the file of an update was lost, and its client is asked again",
    "round.phase": "a secure round's devices are asked for something else, named in `phase`",
    "round.closed": "no more updates are taken; a job fuses those that are here",
    "round.groups_published": "the groups' models are the current ones, the main one is still distilled (FedSDD)",
    "round.published": "the round's models are the current ones",
    "round.skipped": "nothing was published, `reason` says why; the next round starts from the same models",
    "round.failed": "it could not be fused; `reason` says why",
    "round.retried": "a failed round is fused again",
    "update.received": "a client's update counts",
    "update.outlier": "a client's update lies far from the others', or from the model; `detail` says how far",
    "update.flagged": "a client is not like the others (`flags`: opposes, idle, copies, disagrees); `detail` says why",
    "update.refused": "a client's update was refused; `problem` and `detail` say why",
    "job.queued": "work waits for a worker",
    "job.claimed": "a worker has it",
    "job.phase": "it went on to another phase",
    "job.returned": "it waits for another try; `error` and `detail` say why, if there was a fault",
    "job.done": "its result is published",
    "job.failed": "it failed for good",
    "job.cancelled": "somebody did not want it",
    "job.retried": "an operator lets it run again",
    "model.published": "a new model",
    "model.current": "devices get another model that was there before",
    "prediction.made": "a data set is predicted; the file is there",
    "dataset.added": "a data set of the server was registered",
    "dataset.deleted": "a data set of the server was deleted",
    "network.added": "a network that is a document was registered",
    "network.deleted": "such a network was deleted",
    "blob.damaged": "a stored file has other bytes than its digest says and was set aside; `detail` names it",
    "blob.missing": "a stored file is not there; `detail` names it",
    "blob.restored": "a missing file is back: the same bytes came again",
    "worker.seen": "a worker came, or came back",
    "worker.lost": "a worker has not been heard for a while",
    "worker.left": "a worker stopped",
}


class Event(Response):
    """One thing that happened, told by the transaction that did it."""

    sequence: int = Field(description="grows with every event of the service; the id in the stream", examples=[117])
    at: Timestamp
    kind: str = Field(
        description="one of a fixed list, see docs/watching.md",
        examples=["round.published"],
        json_schema_extra={"x-kinds": {**KINDS}},
    )
    federation_id: str | None = Field(None, description="null for what concerns the whole service")
    data: dict[str, Any] = Field(default_factory=dict, examples=[{"round": 3, "accuracy": 0.91}])


class EventPage(Response):
    """Events, the oldest first."""

    items: list[Event]
    next: int = Field(description="pass it as `after` for what comes then, at once or later")
    missed: bool = Field(False, description="older events than the first one here were dropped by retention")
