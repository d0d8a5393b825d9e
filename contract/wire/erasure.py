"""What was deleted of a client on an operator's word."""

from pydantic import Field

from contract.wire.common import Response


class Deleted(Response):
    """What was removed from the store."""

    updates: int
    generators: int = Field(description="generators and critics of the federated generator")
    discriminators: int = Field(description="with their scores")
    members: int = Field(0, description="of ensembles")
    kept: int = Field(0, description="files that rounds keep for later ones and that tell of it, alone or among all")
    bytes: int = Field(description="of these files")


class Forgotten(Response):
    """A client that was revoked and whose files are deleted."""

    client_id: str
    deleted: Deleted
    models: list[str] = Field(description="ids of the models that its updates were fused into; they stay")
    descendants: list[str] = Field(description="ids of models of later rounds, which began from one of those")
