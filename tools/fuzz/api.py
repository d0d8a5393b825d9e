"""A fuzz run of the HTTP API from its own OpenAPI document, with ids that exist and the tokens of every role.

    python -m tools.fuzz.api --examples 40 --seed 1

No answer may be a 5xx, carry a status or a media type that the document does not name for the call, or a body that
is not of its schema.
"""

import argparse
import random
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import hypothesis
import schemathesis
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from tqdm import tqdm

from client_sdk import Client
from contract.wire.devices import Enrolment
from contract.wire.federations import FederationCreate
from tools.deployment import Deployment, add_server_data, federation_request, run_devices, wait_for

SKIPPED = {
    "/v1/events": "it never ends",
    "/v1/federations/{federation_id}/events": "it never ends",
}
PATCHES = "application/offset+octet-stream"


class Target:
    """A service with something of everything: a finished federation, a running one, one that waits."""

    def __init__(self, folder: Path):
        self.deployment = Deployment(folder / "home", POTSTILL_MAX_UPLOAD_BYTES="200000")
        self.deployment.start_api()
        self.deployment.start_worker()
        add_server_data(self.deployment)
        self._finished(folder)
        running = self._created("running")
        devices = [self._enrol(running, name) for name in ("a", "b")]
        self.tokens = [self.deployment.token, running.join_token, *devices, ""]
        self._good: dict[str, str] = {}
        self._created("waiting")
        self.deployment.operator.start_federation(running.id)
        wait_for(lambda: self.deployment.operator.federation(running.id).current_round, why="no round opens")
        self.ids = self._ids()

    def _created(self, name: str) -> Any:
        body = federation_request(name, {"name": "fedavg"}, rounds={"total": 3, "min_clients": 2}, datasets={})
        return self.deployment.operator.create_federation(FederationCreate.model_validate(body))

    def _finished(self, folder: Path) -> None:
        body = federation_request("finished", {"name": "fedavg"}, rounds={"total": 1, "min_clients": 3})
        made = self.deployment.operator.create_federation(FederationCreate.model_validate(body))
        self.deployment.operator.start_federation(made.id)
        run_devices(self.deployment, made.id, made.join_token, folder / "devices")

    def _enrol(self, federation: Any, name: str) -> str:
        with Client(self.deployment.url) as client:
            enrolment = Enrolment(name=name, num_samples=5)
            return client.enrol(federation.id, enrolment, join_token=federation.join_token).token

    def _ids(self) -> dict[str, list[str]]:
        operator = self.deployment.operator
        federations = [each.id for each in operator.federations().items]
        return {
            "federation_id": federations,
            "round_id": [each.id for id_ in federations for each in operator.rounds(id_).items],
            "client_id": [each.id for id_ in federations for each in operator.clients(id_).items],
            "model_id": [each.id for each in operator.models(limit=100).items],
            "job_id": [each.id for each in operator.jobs().items],
            "dataset_id": [each.id for each in operator.datasets().items],
            "token_id": [each.id for each in operator.tokens().items],
        }

    def aim(self, case: Any, rng: random.Random) -> None:
        """Give a request ids that exist, most of the time."""
        for name in list(case.path_parameters or {}):
            if name in self.ids and rng.random() < 0.8:
                case.path_parameters[name] = rng.choice(self.ids[name])
        if "wait" in (case.query or {}):
            case.query["wait"] = 0

    def token(self, label: str, rng: random.Random) -> str:
        """Return whose token a request bears: mostly one that was let in before."""
        return self._good[label] if label in self._good and rng.random() < 0.8 else rng.choice(self.tokens)

    def learn(self, label: str, token: str, status: int) -> None:
        """Remember who is let in."""
        if status not in (401, 403):
            self._good[label] = token
        elif self._good.get(label) == token:
            del self._good[label]


@schemathesis.serializer(PATCHES)
def _pieces(context: Any, value: Any) -> Any:
    return value if isinstance(value, bytes) else str(value).encode()


def cases_of(operation: Any, count: int, seed: int) -> list[Any]:
    """Return generated requests of an operation."""
    found: list[Any] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=operation.as_strategy())
    def collect(case: Any) -> None:
        found.append(case)

    collect()
    return found


def _sound(result: Any) -> Any:
    assert isinstance(result, Ok), f"the document has an operation that cannot be read: {result.err()}"
    return result.ok()


def fuzz(target: Target, count: int, seed: int) -> tuple[Counter[tuple[str, int]], list[str]]:
    """Send `count` requests an operation; return (operation, status) -> how often, and what went wrong."""
    rng, seen, wrong = random.Random(seed), Counter[tuple[str, int]](), []
    schema = schemathesis.openapi.from_url(f"{target.deployment.url}/openapi.json")
    operations = sorted(map(_sound, schema.get_all_operations()), key=_harm)
    for operation in tqdm(operations, desc="operations"):
        if operation.path in SKIPPED:
            continue
        for case in cases_of(operation, count, seed):
            target.aim(case, rng)
            label = f"{operation.method.upper()} {operation.path}"
            token = target.token(label, rng)
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            response = case.call(base_url=target.deployment.url, headers=headers, timeout=30)
            target.learn(label, token, response.status_code)
            seen[label, response.status_code] += 1
            if response.status_code >= 500 and response.status_code != 507:
                wrong.append(f"{label}: {response.status_code} {response.text[:200]}")
                continue
            try:
                case.validate_response(response, excluded_checks=_excluded())
            except (Exception, FailureGroup) as error:  # noqa: BLE001 - told at the end
                wrong.append(f"{label}: {response.status_code} {error}")
    return seen, wrong


def _harm(operation: Any) -> int:
    """Return 1 for what takes ids or tokens away from the rest: it comes last."""
    ending = operation.path.endswith(("/cancel", "/rotate", "/token", "/join-token"))
    return int(operation.method.upper() == "DELETE" or ending)


def _excluded() -> list[Any]:
    """Return the checks of the library that ask for something else than the document says."""
    wanted = {
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_schema_conformance",
    }
    return [check for check in schemathesis.checks.CHECKS.get_all() if check.__name__ not in wanted]


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=40, help="requests an operation")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        target = Target(Path(folder))
        try:
            seen, wrong = fuzz(target, arguments.examples, arguments.seed)
            log = target.deployment.log("api")
        finally:
            target.deployment.close()
    for (label, status), times in sorted(seen.items()):
        print(f"{label:62} {status} {times:6}")
    print(f"{sum(seen.values())} requests, {len({label for label, _ in seen})} operations, {len(wrong)} of them wrong")
    for line in wrong[:20]:
        print("WRONG", line)
    if "Traceback" in log:
        print(log[log.index("Traceback") :][:2000])
    return 1 if wrong or "Traceback" in log else 0


if __name__ == "__main__":
    sys.exit(main())
