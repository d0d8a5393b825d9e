"""The command line in this process, and a service that answers it what a real one would."""

from collections.abc import Callable
from typing import Any

import httpx
from typer.testing import CliRunner, Result

from potstill.cli import app

FEDERATION: dict[str, Any] = {
    "id": "fed_1",
    "name": "digits",
    "state": "running",
    "recipe": "fedgo-small",
    "round": 2,
    "rounds_total": 10,
    "clients": 4,
    "accuracy": 0.9014,
    "created_at": "2026-01-01T00:00:00Z",
    "task": {"num_classes": 10, "input": {"shape": [1, 8, 8]}},
    "prototypes": [{"architecture": "cnn-digits"}],
    "composition": {"name": "fedgo-small"},
    "local": {},
    "rounds": {},
    "datasets": {},
    "seed": 0,
    "accuracies": [[1, 0.5], [2, 0.9014]],
}
Answer = Callable[[httpx.Request], httpx.Response]


class Service:
    """Answers by method and path; keeps what was asked."""

    def __init__(self) -> None:
        self.asked: list[httpx.Request] = []
        self.answers: dict[tuple[str, str], Answer] = {}

    def on(self, method: str, path: str, body: Any, status: int = 200) -> None:
        media = "application/problem+json" if status >= 400 else "application/json"
        self.answers[method, path] = lambda request: httpx.Response(status, json=body, headers={"content-type": media})

    def __call__(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.asked.append(request)
        return self.answers[request.method, request.url.path](request)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)
