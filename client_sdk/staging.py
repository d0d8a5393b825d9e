"""Direct uploads: a file goes straight into the service's bucket, and is then delivered by name."""

import httpx
from pydantic import TypeAdapter, ValidationError

from client_sdk.errors import ApiError
from client_sdk.transport import FileBody, Transport
from contract.wire.staging import StagedFile

_ANSWER = TypeAdapter(StagedFile)


def stage(transport: Transport, body: FileBody) -> str | None:
    """Put a file into the service's bucket; return its name, or None where the service or the bucket takes none.

    Whoever gets None sends the file as the body of the delivery, which always works.
    """
    try:
        answer = transport.request(
            "POST", "/v1/staging", json={"digest": body.digest, "size": body.path.stat().st_size}
        )
    except ApiError:
        return None
    try:
        place = _ANSWER.validate_json(answer.content)
    except ValidationError:  # a page of something between
        return None
    try:
        put = transport.put_elsewhere(place.url, body, place.headers)
    except httpx.HTTPError:
        return None
    return place.name if put.is_success else None
