"""The loops of docs/devices.md do what the page says, against a service."""

import io
import re
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import torch
from safetensors.torch import load, save

from client_sdk import Client

from .conftest import FED, URL, FakeService, problem

PAGE = Path(__file__).resolve().parents[2] / "docs" / "devices.md"


def block(function: str) -> dict[str, Any]:
    """Run the page's block that has a function; return what it defines."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    found = [code for code in blocks if f"def {function}(" in code]
    assert len(found) == 1
    names: dict[str, Any] = {}
    exec(compile(found[0], str(PAGE), "exec"), names)  # noqa: S102  # our own page
    return names


def step(state: dict[str, torch.Tensor]) -> None:
    for values in state.values():
        values += 1 if values.is_floating_point() else 0


def test_a_loop_of_one_s_own_with_the_client(service: FakeService, tmp_path: Path) -> None:
    plans: list[Any] = []
    service.fault("PUT", "/v1/rounds/rnd_1/update", lambda request: problem("round-closed"))

    def train(state: dict[str, torch.Tensor], plan: Any) -> None:
        plans.append((plan.epochs, plan.objective.kind))
        step(state)

    with Client(URL, http_client=service.client()) as client:
        final = block("take_part")["take_part"](client, FED, "pst_join_1", "a", 7, train, tmp_path)
    assert len(service.updates) == 2 and len(plans) == 3
    assert final.read_bytes() == service.models[service.current]


def test_a_function_that_trains(service: FakeService, take_part: Any, blobs: Any) -> None:
    data = torch.utils.data.TensorDataset(*map(torch.from_numpy, blobs))
    report = take_part(data, train=block("train")["train"])
    assert (report.state, [each.steps for each in report.rounds]) == ("finished", [10, 10])
    assert report.losses[1] < report.losses[0]


def test_the_loop_over_actions_without_the_sdk(service: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    def urlopen(request: urllib.request.Request, timeout: float) -> Any:
        assert request.full_url.startswith(URL)
        headers, body = dict(request.header_items()), cast("bytes | None", request.data)
        answer = service.handle(httpx.Request(request.get_method(), request.full_url, content=body, headers=headers))
        assert answer.status_code < 400, answer.text
        return closing(io.BytesIO(answer.content))

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)

    def train(weights: bytes, plan: dict[str, Any], base: str) -> bytes:
        assert (plan["optimizer"]["kind"], plan["epochs"]) == ("sgd", 2)
        state = load(weights)
        step(state)
        return save(state, {"num_samples": "7", "base_model": base})

    final = block("follow")["follow"](URL, FED, "pst_join_1", "a", 7, train)
    assert len(service.updates) == 2
    assert final == service.models[service.current]


def test_the_page_names_every_action_and_part_of_a_plan() -> None:
    from contract.local import LocalPlan
    from contract.wire import devices

    text = PAGE.read_text(encoding="utf-8")
    assignments = [each for each in vars(devices).values() if getattr(each, "model_fields", {}).get("action")]
    assert {each.model_fields["action"].default for each in assignments} <= set(re.findall(r"`(\w+)`", text))
    told = {"objective", "optimizer", "epochs", "batch_size", "clip_norm", "precision", "privacy"}
    assert told <= set(LocalPlan.model_fields)
