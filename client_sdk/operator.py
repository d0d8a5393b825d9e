"""What an operator, a viewer or the command line says to the service: one typed method per endpoint."""

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from client_sdk.bodies import made_of
from client_sdk.events import follow
from client_sdk.records import Records
from client_sdk.transport import segment
from contract.json_text import read_json
from contract.wire.audit import AuditEntry, AuditFilter
from contract.wire.catalogue import ArchitectureInfo, RecipeInfo, TokenCreate, TokenCreated, TokenInfo, TokenRole
from contract.wire.changes import PlanChange
from contract.wire.common import Page
from contract.wire.devices import ClientInfo, PrototypeChoice, Reissued
from contract.wire.events import Event, EventPage
from contract.wire.explanations import Explanation
from contract.wire.federations import (
    Federation,
    FederationCreate,
    FederationCreated,
    FederationSummary,
    JoinLimits,
    JoinToken,
    Rollback,
)
from contract.wire.networks import RegisteredNetwork
from contract.wire.report import FederationReport
from contract.wire.rounds import Dataset, Job, JobRetry, Model, Promotion, Round, RoundDetail, Worker
from contract.wire.status import Status

Item = TypeVar("Item")
logger = logging.getLogger("client_sdk")


def _events_path(federation_id: str | None) -> str:
    return "/v1/events" if federation_id is None else f"/v1/federations/{segment(federation_id)}/events"


class OperatorClient(Records):
    """Steers federations. `token` is an operator's token; a viewer's is enough for all that only reads.

    Lists come in pages of at most `limit`; `each` walks all of them: ``for f in client.each(client.federations)``.
    """

    @staticmethod
    def each(method: Callable[..., Page[Item]], *args: Any, **options: Any) -> Iterator[Item]:
        """Yield every item of a list method, page by page."""
        after: str | None = None
        while True:
            page = method(*args, **options, after=after)
            yield from page.items
            if page.next is None:
                return
            after = page.next

    def _page(self, path: str, item: type[Item], limit: int | None, after: str | None, **filters: Any) -> Page[Item]:
        return self._get(path, Page[item], params={"limit": limit, "after": after, **filters})  # type: ignore[valid-type]

    # Federations

    def create_federation(self, federation: FederationCreate, *, key: str | None = None) -> FederationCreated:
        """POST /v1/federations. The answer shows the join token, this once.

        Its `notes`, which are logged too, say what was left out, taken by default or changed, and why.

        Args:
            key: Idempotency-Key: the same key with the same body answers the first result.
        """
        body = federation.model_dump(mode="json")  # whole: a plan without its `kind` is none
        made = self._post("/v1/federations", FederationCreated, json=body, key=key)
        for note in made.notes:
            logger.info("%s: %s", made.name, note)
        return made

    def federations(
        self, *, limit: int | None = None, after: str | None = None, newest_first: bool = False
    ) -> Page[FederationSummary]:
        """GET /v1/federations."""
        return self._page("/v1/federations", FederationSummary, limit, after, newest_first=newest_first or None)

    def federation(self, federation_id: str) -> Federation:
        """GET /v1/federations/{id}."""
        return self._get(f"/v1/federations/{segment(federation_id)}", Federation)

    def report(self, federation_id: str, *, targets: Sequence[float] = ()) -> FederationReport:
        """GET /v1/federations/{id}/report: what it has cost, by round, in all and to a test accuracy.

        Args:
            targets: accuracies in [0, 1], 20 at most.
        """
        path = f"/v1/federations/{segment(federation_id)}/report"
        return self._get(path, FederationReport, params={"target": list(targets)})

    def start_federation(self, federation_id: str) -> Federation:
        """POST /v1/federations/{id}/start."""
        return self._steer(federation_id, "start")

    def pause_federation(self, federation_id: str) -> Federation:
        """POST /v1/federations/{id}/pause: no round opens or closes until it is resumed."""
        return self._steer(federation_id, "pause")

    def resume_federation(self, federation_id: str) -> Federation:
        """POST /v1/federations/{id}/resume."""
        return self._steer(federation_id, "resume")

    def cancel_federation(self, federation_id: str) -> Federation:
        """POST /v1/federations/{id}/cancel: for good."""
        return self._steer(federation_id, "cancel")

    def rollback_federation(
        self, federation_id: str, *, round: int | None = None, rounds: int | None = None
    ) -> Federation:
        """POST /v1/federations/{id}/rollback: go back to the models after an earlier round.

        Args:
            round: after which one; 0 are the first models.
            rounds: instead: undo so many published rounds.

        Raises:
            InvalidTransition: while a round is fused.
        """
        body = made_of(Rollback, round=round, rounds=rounds).model_dump(exclude_none=True)
        return self._post(f"/v1/federations/{segment(federation_id)}/rollback", Federation, json=body)

    def change_plan(self, federation_id: str, change: PlanChange) -> Federation:
        """PATCH /v1/federations/{id}/plan: how devices train and rounds go, from the next round on.

        Raises:
            InvalidField: what cannot be changed, and why.
            InvalidTransition: it is over.
        """
        path = f"/v1/federations/{segment(federation_id)}/plan"
        return self._call("PATCH", path, Federation, json=change.told())

    def rotate_join_token(
        self, federation_id: str, *, max_uses: int | None = None, valid_seconds: int | None = None
    ) -> str:
        """POST /v1/federations/{id}/join-token: return a fresh join token; the one before no longer works.

        Args:
            max_uses: devices that may enrol with it; None for any number.
            valid_seconds: its life; None for the service's default.
        """
        limits = made_of(JoinLimits, max_uses=max_uses, valid_seconds=valid_seconds).model_dump(mode="json")
        path = f"/v1/federations/{segment(federation_id)}/join-token"
        return self._post(path, JoinToken, json=limits).join_token

    def _steer(self, federation_id: str, verb: str) -> Federation:
        return self._post(f"/v1/federations/{segment(federation_id)}/{verb}", Federation)

    # Events

    def event_page(
        self, federation_id: str | None = None, *, after: int = 0, newest: int | None = None, limit: int | None = None
    ) -> EventPage:
        """GET /v1/federations/{id}/events?format=json, or of the whole service: one page, for a program that polls.

        Args:
            after: the `next` of the page before.
            newest: instead, begin with the newest so many.
        """
        start = {"after": after} if newest is None else {"newest": newest}
        params = {"format": "json", "limit": limit, **start}
        return self._get(_events_path(federation_id), EventPage, params=params)

    def events(
        self, federation_id: str | None = None, *, after: int | None = None, newest: int | None = None
    ) -> Iterator[Event]:
        """Yield events as they happen, without end; a stream that breaks off goes on where it was.

        Args:
            federation_id: of this federation; None for the whole service.
            after: only those after this `sequence`. Without it, everything that is kept comes first.
            newest: begin with the newest so many; 0 for what happens from now on.

        Raises:
            ApiError: the service refuses.
            TransportError: it could not be reached for too long.
        """
        return follow(self._transport, _events_path(federation_id), after, newest)

    # Clients

    def clients(self, federation_id: str, *, limit: int | None = None, after: str | None = None) -> Page[ClientInfo]:
        """GET /v1/federations/{id}/clients."""
        return self._page(f"/v1/federations/{segment(federation_id)}/clients", ClientInfo, limit, after)

    def revoke_client(self, federation_id: str, client_id: str) -> None:
        """DELETE /v1/federations/{id}/clients/{client}: its token no longer works."""
        self._transport.request("DELETE", f"/v1/federations/{segment(federation_id)}/clients/{segment(client_id)}")

    def reissue_token(self, federation_id: str, client_id: str) -> Reissued:
        """POST /v1/federations/{id}/clients/{client}/token: a fresh token for a device; the one before is void."""
        return self._post(f"/v1/federations/{segment(federation_id)}/clients/{segment(client_id)}/token", Reissued)

    def assign_prototype(self, federation_id: str, client_id: str, prototype: str) -> PrototypeChoice:
        """PUT /v1/federations/{id}/clients/{client}/prototype: what the client trains from the next round on."""
        path = f"/v1/federations/{segment(federation_id)}/clients/{segment(client_id)}/prototype"
        return self._call("PUT", path, PrototypeChoice, json={"prototype": prototype})

    # Rounds

    def rounds(
        self, federation_id: str, *, limit: int | None = None, after: str | None = None, newest_first: bool = False
    ) -> Page[Round]:
        """GET /v1/federations/{id}/rounds."""
        path = f"/v1/federations/{segment(federation_id)}/rounds"
        return self._page(path, Round, limit, after, newest_first=newest_first or None)

    def round(self, round_id: str) -> RoundDetail:
        """GET /v1/rounds/{id}: with its participants."""
        return self._get(f"/v1/rounds/{segment(round_id)}", RoundDetail)

    def explanation(self, round_id: str) -> Explanation:
        """GET /v1/rounds/{id}/explanation: what each client did to it.

        Raises:
            NotFound: there is none, with the reason.
        """
        return self._get(f"/v1/rounds/{segment(round_id)}/explanation", Explanation)

    def close_round(self, round_id: str, *, force: bool = False) -> RoundDetail:
        """POST /v1/rounds/{id}/close: fuse now what has arrived.

        Args:
            force: even when fewer than min_updates have arrived.

        Raises:
            TooFewUpdates: and `force` was not given.
        """
        return self._post(f"/v1/rounds/{segment(round_id)}/close", RoundDetail, params={"force": str(force).lower()})

    # Models

    def models(
        self,
        *,
        federation: str | None = None,
        prototype: str | None = None,
        limit: int | None = None,
        after: str | None = None,
        newest_first: bool = False,
    ) -> Page[Model]:
        """GET /v1/models."""
        filters = {"federation": federation, "prototype": prototype, "newest_first": newest_first or None}
        return self._page("/v1/models", Model, limit, after, **filters)

    def import_model(self, path: str | Path, *, architecture: str | None = None) -> Model:
        """POST /v1/models: weights to start from, a safetensors file, streamed; name its id as `initial_model`.

        Args:
            architecture: what it is the weights of, a name of the catalogue.
        """
        return self._upload("/v1/models", path, Model, architecture=architecture)

    def promote_model(self, model_id: str, *, federation: str | None = None, prototype: str | None = None) -> Model:
        """POST /v1/models/{id}/promote: make it what devices get next.

        Args:
            federation, prototype: for an imported model, where it is to go.

        Raises:
            InvalidTransition: while a round is fused.
        """
        body = made_of(Promotion, federation=federation, prototype=prototype).model_dump(exclude_none=True)
        return self._post(f"/v1/models/{segment(model_id)}/promote", Model, json=body)

    # Data sets

    def add_dataset(self, name: str, path: str | Path) -> Dataset:
        """POST /v1/datasets: a safetensors file with `inputs` [N, …] and, for validation and test, `labels` [N]."""
        return self._upload("/v1/datasets", path, Dataset, name=name)

    def datasets(self, *, limit: int | None = None, after: str | None = None) -> Page[Dataset]:
        """GET /v1/datasets."""
        return self._page("/v1/datasets", Dataset, limit, after)

    def dataset(self, dataset_id: str) -> Dataset:
        """GET /v1/datasets/{id}."""
        return self._get(f"/v1/datasets/{segment(dataset_id)}", Dataset)

    def delete_dataset(self, dataset_id: str) -> None:
        """DELETE /v1/datasets/{id}; `InUse` while a federation that goes on needs it."""
        self._transport.request("DELETE", f"/v1/datasets/{segment(dataset_id)}")

    # The service

    def status(self) -> Status:
        """GET /v1/status: whether all is well, and what role this token has."""
        return self._get("/v1/status", Status)

    # Jobs and workers

    def jobs(
        self,
        *,
        federation: str | None = None,
        state: str | None = None,
        limit: int | None = None,
        after: str | None = None,
        newest_first: bool = False,
    ) -> Page[Job]:
        """GET /v1/jobs."""
        filters = {"federation": federation, "state": state, "newest_first": newest_first or None}
        return self._page("/v1/jobs", Job, limit, after, **filters)

    def job(self, job_id: str) -> Job:
        """GET /v1/jobs/{id}: with its progress while it runs."""
        return self._get(f"/v1/jobs/{segment(job_id)}", Job)

    def cancel_job(self, job_id: str) -> Job:
        """POST /v1/jobs/{id}/cancel."""
        return self._post(f"/v1/jobs/{segment(job_id)}/cancel", Job)

    def retry_job(self, job_id: str, *, exclude: Sequence[str] = (), force: bool = False) -> Job:
        """POST /v1/jobs/{id}/retry: try a failed job again.

        Args:
            exclude: names or ids of clients whose updates are left out of the round.
            force: even when fewer than min_updates are left.
        """
        body = made_of(JobRetry, exclude=list(exclude), force=force).model_dump()
        return self._post(f"/v1/jobs/{segment(job_id)}/retry", Job, json=body)

    def workers(self) -> list[Worker]:
        """GET /v1/workers: who is alive, on what device, doing what."""
        return self._get("/v1/workers", list[Worker])

    # Networks

    def register_network(self, file: str | Path, name: str, *, initial_model: str | None = None) -> RegisteredNetwork:
        """POST /v1/networks: register a document that `export_network` wrote.

        Args:
            file: the document.
            name: a prototype names it as ``net:`` and this.
            initial_model: id of an imported model, its first weights.
        """
        params = {"name": name, "initial_model": initial_model}
        return self._post("/v1/networks", RegisteredNetwork, params=params, json=read_json(Path(file).read_bytes()))

    def networks(self, *, limit: int | None = None, after: str | None = None) -> Page[RegisteredNetwork]:
        """GET /v1/networks: those that operators have registered."""
        return self._page("/v1/networks", RegisteredNetwork, limit, after)

    def network(self, network: str) -> RegisteredNetwork:
        """GET /v1/networks/{id}: by its id, its name or its architecture."""
        return self._get(f"/v1/networks/{segment(network)}", RegisteredNetwork)

    def delete_network(self, network: str) -> None:
        """DELETE /v1/networks/{id}: refused while a federation names it."""
        self._transport.request("DELETE", f"/v1/networks/{segment(network)}")

    # Catalogue

    def recipes(self) -> list[RecipeInfo]:
        """GET /v1/recipes: every built-in recipe with its parts and their sources."""
        return self._get("/v1/recipes", list[RecipeInfo])

    def architectures(self) -> list[ArchitectureInfo]:
        """GET /v1/architectures: the networks that prototypes and recipes can name."""
        return self._get("/v1/architectures", list[ArchitectureInfo])

    # Tokens

    def create_token(self, name: str, role: TokenRole = "viewer", *, valid_seconds: int | None = None) -> TokenCreated:
        """POST /v1/tokens. The answer shows the secret, this once.

        Args:
            valid_seconds: life of the token; None for no end.
        """
        body = made_of(TokenCreate, name=name, role=role, valid_seconds=valid_seconds).model_dump(mode="json")
        return self._post("/v1/tokens", TokenCreated, json=body)

    def tokens(self, *, limit: int | None = None, after: str | None = None) -> Page[TokenInfo]:
        """GET /v1/tokens: without their secrets."""
        return self._page("/v1/tokens", TokenInfo, limit, after)

    def revoke_token(self, token_id: str) -> None:
        """DELETE /v1/tokens/{id}."""
        self._transport.request("DELETE", f"/v1/tokens/{segment(token_id)}")

    def audit(self, *, limit: int | None = None, after: str | None = None, **filters: Any) -> Page[AuditEntry]:
        """GET /v1/audit: who did what, the newest first.

        Args:
            filters: `actor`, `action` (with a dot at the end all that begin so), `target`, `federation`, `outcome`,
                `request`, `since`, `until` (aware datetimes), `oldest_first`.
        """
        shown = AuditFilter.model_validate({name: value for name, value in filters.items() if value is not None})
        sent = shown.model_dump(mode="json", exclude_unset=True)
        return self._page("/v1/audit", AuditEntry, limit, after, **sent)
