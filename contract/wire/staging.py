"""Files that a device puts into the bucket by itself."""

from pydantic import Field

from contract.wire.common import Request, Response, Timestamp


class StagingRequest(Request):
    """What will be put."""

    digest: str = Field(
        pattern=r"^sha256-[0-9a-f]{64}$", description="``sha256-<hex>`` of the file", examples=["sha256-" + "0" * 64]
    )
    size: int = Field(ge=1, description="bytes", examples=[104_857_600])


class StagedFile(Response):
    """Where to put it: `PUT url` with exactly these headers and bytes, without a token."""

    name: str = Field(description="what the delivery then names: `?staged=`")
    url: str
    headers: dict[str, str]
    expires_at: Timestamp
