"""Bodies of requests that are made of arguments: what cannot be is told by its name before anything is sent."""

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from client_sdk.errors import UsageError
from contract.faults import faults_of

Body = TypeVar("Body", bound=BaseModel)


def made_of(kind: type[Body], **told: Any) -> Body:
    """Return a body that says what was told.

    Raises:
        UsageError: it is not what such a body may have, naming the argument.
    """
    try:
        return kind.model_validate(told)
    except ValidationError as error:
        field, message = faults_of(error, told)[0]
        raise UsageError(f"{field}: {message}" if field else message) from error
