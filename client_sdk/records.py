"""The operator's methods for what was made from what, and for what is kept."""

from pathlib import Path

from client_sdk.bodies import made_of
from client_sdk.client import BaseClient
from client_sdk.downloads import download
from client_sdk.transport import segment
from contract.wire.common import Page
from contract.wire.ensembles import Ensemble, Prediction, PredictionRequest
from contract.wire.erasure import Forgotten
from contract.wire.federations import FederationCreate, FederationDraft
from contract.wire.provenance import Provenance
from contract.wire.retention import Retention


class Records(BaseClient):
    """Drafts, provenance, ensembles, predictions and retention: what `OperatorClient` inherits."""

    def draft_federation(self, federation: FederationCreate) -> FederationDraft:
        """POST /v1/federations/draft: what `create_federation` would make of it; nothing is changed."""
        body = federation.model_dump(mode="json")
        return self._post("/v1/federations/draft", FederationDraft, json=body)

    def model_provenance(self, model_id: str) -> Provenance:
        """GET /v1/models/{id}/provenance: digests of all inputs, recipe, seeds, code, libraries, device, job."""
        return self._get(f"/v1/models/{segment(model_id)}/provenance", Provenance)

    def round_provenance(self, round_id: str) -> Provenance:
        """GET /v1/rounds/{id}/provenance."""
        return self._get(f"/v1/rounds/{segment(round_id)}/provenance", Provenance)

    def export_round(self, round_id: str, target: Path) -> Path:
        """GET /v1/rounds/{id}/bundle: a published round with all its inputs in one tar file, for `potstill replay`.

        It holds the clients' updates: treat it like them. The file appears only when it is whole.

        Raises:
            Removed: retention has removed an input.
        """
        download(self._transport, f"/v1/rounds/{segment(round_id)}/bundle", target)
        return target

    def ensemble(self, round_id: str) -> Ensemble:
        """GET /v1/rounds/{id}/ensemble: who predicts together, with what weights, by digest.

        Raises:
            NotFound: the round kept none.
        """
        return self._get(f"/v1/rounds/{segment(round_id)}/ensemble", Ensemble)

    def export_ensemble(self, round_id: str, target: Path) -> Path:
        """GET /v1/rounds/{id}/ensemble/bundle: the ensemble in one tar file, that predicts without the service.

        It may hold clients' models: treat it like them. The file appears only when it is whole.

        Raises:
            Removed: retention has removed a member.
        """
        download(self._transport, f"/v1/rounds/{segment(round_id)}/ensemble/bundle", target)
        return target

    def predict(
        self,
        federation_id: str,
        dataset: str,
        *,
        ensemble: bool = False,
        round: int | None = None,
        prototype: str | None = None,
        key: str | None = None,
    ) -> Prediction:
        """POST /v1/federations/{id}/predict: have a registered data set predicted; `prediction` says how far it is.

        Args:
            dataset: its name, id or digest.
            ensemble: with a round's ensemble; else with one global model.
            round: of which round; None for what devices get now, or the newest ensemble.
            prototype: whose global model, where there are several.
            key: Idempotency-Key: the same key with the same body answers the first result.

        Raises:
            InvalidField: the data set does not fit, or the ensemble cannot predict.
            Removed: retention has removed what is needed.
        """
        wish = made_of(PredictionRequest, dataset=dataset, ensemble=ensemble, round=round, prototype=prototype)
        path = f"/v1/federations/{segment(federation_id)}/predict"
        return self._post(path, Prediction, json=wish.model_dump(mode="json", exclude_none=True), key=key)

    def prediction(self, prediction_id: str) -> Prediction:
        """GET /v1/predictions/{id}: how far it is, its accuracy, where its file is."""
        return self._get(f"/v1/predictions/{segment(prediction_id)}", Prediction)

    def predictions(
        self, federation_id: str, *, limit: int | None = None, after: str | None = None
    ) -> Page[Prediction]:
        """GET /v1/federations/{id}/predictions."""
        params = {"limit": limit, "after": after}
        return self._get(f"/v1/federations/{segment(federation_id)}/predictions", Page[Prediction], params=params)

    def download_prediction(self, prediction: Prediction, target: Path) -> Path:
        """GET /v1/predictions/{id}/file into `target`: `logits` F32 [N, C] and `predicted` I64 [N], safetensors.

        Raises:
            NotFound: it is not made yet.
            Removed: retention has removed it.
        """
        download(self._transport, prediction.url, target, digest=prediction.digest)
        return target

    def job_provenance(self, job_id: str) -> Provenance:
        """GET /v1/jobs/{id}/provenance: also of scores, which are no models."""
        return self._get(f"/v1/jobs/{segment(job_id)}/provenance", Provenance)

    def change_retention(self, federation_id: str, plan: Retention) -> Retention:
        """PUT /v1/federations/{id}/retention: what the new plan does not keep is removed at once."""
        path = f"/v1/federations/{segment(federation_id)}/retention"
        return self._call("PUT", path, Retention, json=plan.model_dump(mode="json"))

    def forget_client(self, federation_id: str, client_id: str) -> Forgotten:
        """DELETE /v1/federations/{id}/clients/{client}?forget=true: revoke it and delete what it sent.

        Raises:
            InUse: a job may be reading it; ask again when it has ended.
        """
        path = f"/v1/federations/{segment(federation_id)}/clients/{segment(client_id)}"
        return self._call("DELETE", path, Forgotten, params={"forget": "true"})

    def delete_federation(self, federation_id: str) -> None:
        """DELETE /v1/federations/{id}: one that has ended, with all that belongs to it, for good."""
        self._transport.request("DELETE", f"/v1/federations/{segment(federation_id)}")
