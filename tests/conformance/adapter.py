"""What the suite must be able to do with a service, and how it is done with Potstill. httpx is all that it needs.

For another service, write a class with the same three methods of `Adapter` and of `Session`, and name it in
CONFORMANCE_ADAPTER; docs/conformance.md says how.
"""

import time
from typing import Any, Protocol

import httpx

from tests.conformance.files import REFERENCE, Notes, Schema, sound


class Session(Protocol):
    """One round of training that is open, with its clients enrolled."""

    schema: Schema

    def notes(self, client: int, num_samples: int = 10) -> Notes:
        """Return what the service wants in the metadata of a client's file; nothing if it wants it elsewhere."""

    def send(self, client: int, body: bytes, headers: dict[str, str] | None = None) -> httpx.Response:
        """Upload a client's update."""

    def answered(self) -> int:
        """Return how many clients' updates count in this round."""

    def model(self) -> bytes:
        """Return the global model as a safetensors file, as a client gets it."""

    def finish(self) -> bytes | None:
        """End the round with what has arrived; return the new global model, or None if none was published."""


class Adapter(Protocol):
    """A service under test."""

    def open(self, clients: int) -> Session:
        """Begin a training whose first round waits for so many clients' updates."""

    def close(self) -> None:
        """Clean up."""


class PotstillSession:
    """A federation with one round."""

    def __init__(self, adapter: "Potstill", clients: int):
        self.schema = REFERENCE
        self._adapter = adapter
        made = adapter.call(
            "POST",
            "/v1/federations",
            json={
                "name": f"conformance-{time.time_ns()}",
                "task": {"num_classes": 10, "input": {"shape": [1, 8, 8]}},
                "prototypes": [{"name": "main", "architecture": "custom", "initial_model": adapter.first_model}],
                "recipe": {"name": "fedavg"},
                "rounds": {"total": 1, "min_clients": clients, "min_updates": 1},
            },
        )
        self._url = f"/v1/federations/{made['id']}"
        devices = [{"name": f"c{i}", "num_samples": 1000} for i in range(clients)]
        self._tokens = [
            adapter.call("POST", f"{self._url}/clients", made["join_token"], json=device)["token"] for device in devices
        ]
        adapter.call("POST", f"{self._url}/start")
        self._tasks = [self._task(token) for token in self._tokens]
        self._round = f"/v1/rounds/{self._tasks[0]['round']['id']}"

    def _task(self, token: str) -> dict[str, Any]:
        for _ in range(20):
            task = self._adapter.call("GET", "/v1/assignment?wait=5", token)
            if task["action"] == "train":
                return dict(task)
        raise AssertionError(f"the round does not open: {task}")

    def notes(self, client: int, num_samples: int = 10) -> Notes:
        """Sample count and base model."""
        return {"num_samples": str(num_samples), "base_model": self._tasks[client]["model"]["id"]}

    def send(self, client: int, body: bytes, headers: dict[str, str] | None = None) -> httpx.Response:
        """PUT the update."""
        sent = {"Authorization": f"Bearer {self._tokens[client]}", **(headers or {})}
        return self._adapter.http.put(self._tasks[client]["upload_url"], content=body, headers=sent)

    def answered(self) -> int:
        """Read it from the round."""
        return int(self._adapter.call("GET", self._round)["answered"])

    def model(self) -> bytes:
        """Download the newest model."""
        federation = self._adapter.call("GET", self._url)
        return self._adapter.get(federation["models"]["main"]["url"])

    def finish(self) -> bytes | None:
        """Close the round, unless it is full, and wait for its end."""
        if self._adapter.call("GET", self._round)["state"] == "collecting":
            self._adapter.call("POST", f"{self._round}/close", json={"force": True})
        end = time.monotonic() + 60
        while time.monotonic() < end:
            state = self._adapter.call("GET", self._round)["state"]
            if state in ("published", "failed", "skipped"):
                return self.model() if state == "published" else None
            time.sleep(0.05)
        raise AssertionError("the round does not end")


class Potstill:
    """Potstill over HTTP, with an operator's token."""

    def __init__(self, url: str, token: str):
        self.http = httpx.Client(base_url=url, timeout=60)
        self._token = token
        self.first_model = self.call("POST", "/v1/models?architecture=custom", content=sound(REFERENCE, {}, seed=0))[
            "id"
        ]

    def call(self, method: str, url: str, token: str | None = None, **options: Any) -> Any:
        """Make a request that must succeed; return its JSON."""
        headers = {"Authorization": f"Bearer {token or self._token}"}
        response = self.http.request(method, url, headers=headers, **options)
        assert response.is_success, f"{method} {url}: {response.status_code} {response.text}"
        return response.json() if response.content else None

    def get(self, url: str) -> bytes:
        """Return a file."""
        response = self.http.get(url, headers={"Authorization": f"Bearer {self._token}"}, follow_redirects=True)
        assert response.status_code == 200
        return response.content

    def open(self, clients: int) -> PotstillSession:
        """Create, enrol, start."""
        return PotstillSession(self, clients)

    def close(self) -> None:
        """Close the connections."""
        self.http.close()
