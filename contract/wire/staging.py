"""Files that a device puts into the bucket by itself."""

from pydantic import Field

from contract.bounds import COUNT
from contract.wire.common import Digest, Request, Response, Timestamp


class StagingRequest(Request):
    """What will be put."""

    digest: Digest = Field(description="``sha256-<hex>`` of the file")
    size: int = Field(ge=1, le=COUNT, description="bytes", examples=[104_857_600])


class StagedFile(Response):
    """Where to put it: `PUT url` with exactly these headers and bytes, without a token."""

    name: str = Field(description="what the delivery then names: `?staged=`")
    url: str
    headers: dict[str, str]
    expires_at: Timestamp
