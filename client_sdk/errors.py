"""Everything the SDK raises.

PotstillError
├── UsageError                  an argument that cannot work
├── DatasetError                the data set is empty, or is not what the task asks for (`.field`)
├── ModelMismatch               your module's tensors differ from the federation's (`.tensors`)
├── MissingPackage              devices run what a package brings that is not installed here
├── PackageFailed               code of an installed package failed, or returned what it may not
├── TrainingError               the loss or a weight is no longer finite
├── SecureRefusal               a secure round would show more than the sum, or somebody lies; nothing was said
├── StateError                  the state folder is in use, or belongs to another client
├── FederationEnded             the federation takes no more devices (`.state`)
├── UnexpectedAnswer            the service speaks another version of the contract
├── TransportError              no answer, in spite of retries
│   ├── BrokenUpload            the connection was lost while a body was on its way
│   ├── UntrustedCertificate    nobody vouches for the service's certificate; nothing was sent
│   └── CorruptDownload         the bytes do not match their digest
└── ApiError                    the service said no (`.status .kind .detail .members .request_id`)
    ├── InvalidRequest IncompleteBody DigestMismatch                                           400
    ├── Unauthorized Forbidden InsecureTransport JoinTokenSpent NotFound MethodNotAllowed  401–405
    ├── Conflict                                                                               409
    │   ├── InvalidTransition NameTaken InUse IdempotencyConflict TooFewUpdates LimitReached
    │   ├── UploadOffset UploadIncomplete
    │   └── UpdateRefused       skip this round: RoundClosed NotSelected StaleBaseModel AlreadyDelivered
    ├── Removed TusVersion TooLarge UnsupportedMediaType RangeNotSatisfiable               410–416
    ├── Invalid                 InvalidField InvalidContainer InvalidTensors InvalidValues     422
    ├── UploadLocked ChecksumMismatch                                                      423 460
    ├── TooManyRequests TooManyUploads ServiceFault StorageFull                        429 500 507
    └── Unavailable             StorageUnavailable BlobDamaged BlobMissing                     503
"""

from typing import Any, ClassVar

import httpx
from pydantic import ValidationError

from client_sdk.between import explain
from client_sdk.local_errors import *  # noqa: F403 - whoever catches errors needs this module alone
from client_sdk.local_errors import PotstillError
from contract.wire.problems import KINDS, TYPE_PREFIX, Problem


class ApiError(PotstillError):
    """The service refused a request.

    Attributes:
        status: HTTP status.
        kind: the problem's kind, one of `contract.wire.problems.KINDS`, or ``""`` when the answer was not the
            service's (a proxy's page, say): then it says nothing about what was sent.
        detail: what went wrong and what to do.
        members: the kind's own members, such as ``tensor``, ``expected``, ``actual``.
        request_id: to be quoted to the operator, who finds the request by it in the log.
    """

    problem_kind: ClassVar[str] = ""
    classes: ClassVar[dict[str, type["ApiError"]]] = {}

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        own = cls.__dict__.get("problem_kind")
        if own:
            if own not in KINDS or own in ApiError.classes:
                raise TypeError(f"{cls.__name__}: problem kind {own!r} is unknown or has a class already")
            ApiError.classes[own] = cls

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        kind: str = "",
        title: str = "",
        members: dict[str, Any] | None = None,
        request_id: str | None = None,
    ):
        suffix = f" [request {request_id}]" if request_id else ""
        super().__init__(
            f"{title + ': ' if title else ''}{detail} (HTTP {status}{', ' + kind if kind else ''}){suffix}"
        )
        self.status, self.kind, self.title, self.detail = status, kind, title, detail
        self.members: dict[str, Any] = members or {}
        self.request_id = request_id


class InvalidRequest(ApiError):
    """The request cannot be understood."""

    problem_kind = "invalid-request"


class IncompleteBody(ApiError):
    """The body is shorter than announced."""

    problem_kind = "incomplete-body"


class DigestMismatch(ApiError):
    """The body does not match its digest."""

    problem_kind = "digest-mismatch"


class Unauthorized(ApiError):
    """A valid token is needed."""

    problem_kind = "unauthorized"


class Forbidden(ApiError):
    """This token may not do that."""

    problem_kind = "forbidden"


class InsecureTransport(ApiError):
    """Plain HTTP is not taken here."""

    problem_kind = "insecure-transport"


class JoinTokenSpent(ApiError):
    """The join token lets nobody in any more."""

    problem_kind = "join-token-spent"


class NotFound(ApiError):
    """There is no such thing."""

    problem_kind = "not-found"


class MethodNotAllowed(ApiError):
    """This method is not allowed here."""

    problem_kind = "method-not-allowed"


class Conflict(ApiError):
    """409: not possible now."""


class InvalidTransition(Conflict):
    """Not possible in this state."""

    problem_kind = "invalid-transition"


class NameTaken(Conflict):
    """The name is taken."""

    problem_kind = "name-taken"


class InUse(Conflict):
    """It is in use."""

    problem_kind = "in-use"


class IdempotencyConflict(Conflict):
    """The idempotency key was used for another request."""

    problem_kind = "idempotency-conflict"


class TooFewUpdates(Conflict):
    """Too few updates."""

    problem_kind = "too-few-updates"


class LimitReached(Conflict):
    """There may be no more of these."""

    problem_kind = "limit-reached"


class UpdateRefused(Conflict):
    """The round does not take this update; a device goes on with the next assignment."""


class RoundClosed(UpdateRefused):
    """The round takes no more updates."""

    problem_kind = "round-closed"


class NotSelected(UpdateRefused):
    """This client was not asked in this round."""

    problem_kind = "not-selected"


class StaleBaseModel(UpdateRefused):
    """The update starts from another model."""

    problem_kind = "stale-base-model"


class AlreadyDelivered(UpdateRefused):
    """Something else was delivered before."""

    problem_kind = "already-delivered"


class UploadOffset(Conflict):
    """The upload goes on at another offset."""

    problem_kind = "upload-offset"


class UploadIncomplete(Conflict):
    """The upload is not finished."""

    problem_kind = "upload-incomplete"


class TusVersion(ApiError):
    """Another version of tus is spoken here."""

    problem_kind = "tus-version"


class Removed(ApiError):
    """It was there and is no more: retention has removed it."""

    problem_kind = "removed"


class TooLarge(ApiError):
    """The body is too large."""

    problem_kind = "too-large"


class UnsupportedMediaType(ApiError):
    """This kind of body is not taken."""

    problem_kind = "unsupported-media-type"


class RangeNotSatisfiable(ApiError):
    """The range is outside the file."""

    problem_kind = "range-not-satisfiable"


class Invalid(ApiError):
    """422: understood, and wrong."""


class InvalidField(Invalid):
    """A field is not valid."""

    problem_kind = "invalid-field"


class InvalidContainer(Invalid):
    """The file is not a valid safetensors file."""

    problem_kind = "invalid-container"


class InvalidTensors(Invalid):
    """The tensors are not what was asked for."""

    problem_kind = "invalid-tensors"


class InvalidValues(Invalid):
    """A tensor has values that cannot be used."""

    problem_kind = "invalid-values"


class UploadLocked(ApiError):
    """Another request has the upload."""

    problem_kind = "upload-locked"


class TooManyUploads(ApiError):
    """Too many uploads are open."""

    problem_kind = "too-many-uploads"


class ChecksumMismatch(ApiError):
    """The piece does not match its checksum."""

    problem_kind = "checksum-mismatch"


class TooManyRequests(ApiError):
    """Too many requests."""

    problem_kind = "too-many-requests"


class ServiceFault(ApiError):
    """Something went wrong here."""

    problem_kind = "internal"


class Unavailable(ApiError):
    """The service cannot answer now."""

    problem_kind = "unavailable"


class StorageUnavailable(Unavailable):
    """The service's storage cannot be read or written."""

    problem_kind = "storage-unavailable"


class BlobDamaged(Unavailable):
    """A stored file is damaged; the operator knows which, and must put it back."""

    problem_kind = "blob-damaged"


class BlobMissing(Unavailable):
    """A stored file is missing; the operator must put it back."""

    problem_kind = "blob-missing"


class StorageFull(ApiError):
    """There is no room for this."""

    problem_kind = "storage-full"


def from_response(response: httpx.Response) -> ApiError:
    """Return the exception for an error response whose body has been read; one that is not ours has no kind."""
    request_id = response.headers.get("X-Request-Id")
    try:
        problem = Problem.model_validate_json(response.content)
    except ValidationError:
        problem = None
    if problem is None or not problem.type.startswith(TYPE_PREFIX):
        return ApiError(response.status_code, explain(response), request_id=request_id)
    kind = problem.kind
    return ApiError.classes.get(kind, ApiError)(
        response.status_code,
        problem.detail,
        kind=kind,
        title=problem.title,
        members=dict(problem.model_extra or {}),
        request_id=request_id or problem.instance,
    )
