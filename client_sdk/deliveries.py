"""The end of every piece of a device's work: the pending file goes to the service, and its answer is recorded."""

from collections import Counter
from collections.abc import Sequence

from client_sdk import identity
from client_sdk.client import Client
from client_sdk.errors import (
    ApiError,
    DigestMismatch,
    IncompleteBody,
    InvalidField,
    InvalidTransition,
    Unauthorized,
    UpdateRefused,
)
from client_sdk.progress import Progress
from client_sdk.state import Pending, StateFolder
from client_sdk.uploads import OnBytes

BAD_FILE = frozenset({409, 413, 415, 422})  # the same bytes would be refused again
TRIES = 3  # for bytes that suffered on the way


class Deliveries:
    """Delivers what is pending in a device's folder, be it an update, a generator or a discriminator."""

    def __init__(self, client: Client, folder: StateFolder, progress: Progress):
        self._client, self._folder, self._progress = client, folder, progress
        self._refusals: Counter[tuple[str, str, str]] = Counter()
        self._data: tuple[int, Sequence[int] | None] = (0, None)

    def hold(self, num_samples: int, label_counts: Sequence[int] | None) -> None:
        """Note what the device's data set is, for a service that has forgotten it."""
        self._data = num_samples, label_counts

    def deliver(self, pending: Pending, url: str) -> str | None:
        """Upload what is pending and record the answer; return None, or why the service no longer wants it.

        Args:
            url: where the service takes it, such as the assignment's `upload_url`.

        Raises:
            ApiError: refused for good, or the same thing was refused twice.
        """
        try:
            with self._progress.sending("uploading") as on_bytes:
                self._upload(pending, url, on_bytes)
        except (UpdateRefused, InvalidTransition) as error:  # the federation may have ended meanwhile
            self._folder.drop_pending()
            work = (pending.kind, pending.purpose, pending.base)  # a round may begin again from another model
            self._refusals[work] += 1
            if self._refusals[work] > 1:
                raise
            return error.detail
        except Unauthorized as error:
            raise identity.refused(error, self._folder) from error
        except ApiError as error:
            if not error.kind:
                raise self._kept(error) from error
            if error.status in BAD_FILE:
                self._folder.drop_pending()
            raise
        self._folder.acknowledge(pending)
        return None

    def _kept(self, error: ApiError) -> ApiError:
        """Return the error for an answer that is not the service's verdict, saying that nothing is lost."""
        where = f"what was trained is kept in {self._folder.path} and is sent at the next start"
        return ApiError(error.status, f"{error.detail}; {where}", request_id=error.request_id)

    def _upload(self, pending: Pending, url: str, on_bytes: OnBytes) -> None:
        identity.declare(self._client, self._folder, pending.num_samples)  # or it would be refused
        for last in range(TRIES, 0, -1):
            try:
                self._client.deliver(
                    pending.kind, url, self._folder.pending_file, memory=self._folder, on_bytes=on_bytes
                )
                return
            except (IncompleteBody, DigestMismatch):
                if last == 1:
                    raise
            except InvalidField as error:  # an older state of the service came back, which knows of fewer
                if last == 1 or error.members.get("field") != "num_samples":
                    raise
                self._declare_anew(pending)

    def _declare_anew(self, pending: Pending) -> None:
        """Declare the whole data set, with its counts per class where they are shared: such weightings need them."""
        size, counts = self._data
        if size < pending.num_samples:  # it was trained when there were more, and nobody has counted those
            size, counts = pending.num_samples, None
        identity.declare(self._client, self._folder, size, counts, anew=True)
