"""Networks that are documents, as operators register them."""

from pydantic import Field

from contract.networks.facts import Facts
from contract.wire.common import Digest, Response, Timestamp


class RegisteredNetwork(Response):
    """A registered network: a prototype or a recipe names it by ``net:`` and its name, or by its architecture."""

    id: str = Field(examples=["net_01…"])
    name: str
    architecture: str = Field(description="what it is called for good", examples=["net:sha256-" + "0" * 64])
    digest: Digest = Field(description="of the document: keys sorted, no blanks, UTF-8")
    size: int = Field(description="bytes of the document")
    facts: Facts
    initial_model: str | None = Field(None, description="id of the model with its first weights")
    created_at: Timestamp
    url: str = Field(description="where the document is", examples=["/v1/networks/net_01…/document"])
