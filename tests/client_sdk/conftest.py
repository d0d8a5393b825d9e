"""An in-process stand-in for the service, small enough to see what the SDK really sends."""

import hashlib
import json
import re
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch

from client_sdk import RunReport, train_and_push
from contract.nn import codec, registry
from contract.nn.classifier import Classifier, SequentialClassifier
from contract.partition import Parts, partition
from contract.tensors import TensorFile, parse_header, write_file
from contract.updates import BASE_KEY, FEATURES_KEY
from contract.whole import part_files
from contract.wire.federations import Task
from contract.wire.problems import KINDS, MEDIA_TYPE, TYPE_PREFIX

URL = "http://potstill.test"
FED = "fed_1"
TASK = {"kind": "classification", "num_classes": 2, "input": {"shape": [2], "dtype": "float32"}}
NOW = "2026-01-01T00:00:00.000Z"


def problem(
    kind: str, detail: str = "because", headers: dict[str, str] | None = None, **members: Any
) -> httpx.Response:
    """Return the response for a problem."""
    status, title = KINDS[kind]
    body = {"type": TYPE_PREFIX + kind, "title": title, "status": status, "detail": detail, **members}
    sent = {"Content-Type": MEDIA_TYPE, "X-Request-Id": "req-1", **(headers or {})}
    return httpx.Response(status, content=json.dumps(body).encode(), headers=sent)


class FakeService:
    """One federation with one client; each update becomes the next round's model, if it holds a model and no more.

    `faults` holds (method, path pattern, function of the request): used once each, in order, before anything else.
    """

    def __init__(
        self, folder: Path, *, rounds: int = 2, architecture: str = "mlp", options: dict[str, Any] | None = None
    ):
        self.folder, self.rounds, self.architecture = folder, rounds, architecture
        self.options = options if options is not None else {"hidden": [8]}
        self.requests: list[httpx.Request] = []
        self.faults: deque[tuple[str, str, Callable[[httpx.Request], httpx.Response]]] = deque()
        self.models: dict[str, bytes] = {}
        self.updates: list[bytes] = []
        self.discriminator: bytes | None = None
        self.want_discriminator = False
        self.gan_plan: dict[str, Any] | None = None
        self.gan_round, self.gans = 1, list[bytes]()
        self.extras: dict[str, str] = {}
        self.parts: dict[str, Any] = {}
        self.heartbeat_seconds: int | None = None
        self.beats: list[dict[str, Any]] = []
        self.plan: dict[str, Any] = {"optimizer": {"kind": "sgd", "lr": 0.1}, "epochs": 2, "batch_size": 8}
        self.state, self.round, self.current = "running", 1, "mdl_0"
        self.task = Task.model_validate(TASK)
        self.classes: list[str] | None = None
        self.token: str | None = None
        self.add_model("mdl_0", "mlp" if architecture == "custom" else architecture, self.options)
        self.add_model("mdl_gen", "gen-mlp", {"latent": 4, "hidden": [8]})

    def add_model(self, model_id: str, architecture: str, options: dict[str, Any]) -> None:
        """Store a freshly initialised network."""
        path = self.folder / f"{model_id}.safetensors"
        module, notes = registry.initialise(architecture, options, self.task, 7), {}
        if isinstance(module, Classifier | SequentialClassifier):
            notes[FEATURES_KEY] = str(module.features(torch.zeros(1, *self.task.input.shape)).shape[1])
        codec.save_state(module, path, notes)
        self.models[model_id] = path.read_bytes()

    def part(self, **parts: Any) -> None:
        """Have a part of the network trained; the others are the base."""
        self.parts, whole = parts, self.folder / "mdl_0.safetensors"
        with TensorFile(whole) as file:
            shared = partition(Parts.model_validate(parts), file.header).shared
        moving, base = self.folder / "moving.safetensors", self.folder / "base.safetensors"
        part_files(whole, shared, base, moving)
        self.models |= {"mdl_0": moving.read_bytes(), "mdl_base": base.read_bytes()}
        self.extras["base"] = "mdl_base"

    def _next_model(self, update: bytes) -> bytes:
        """Return an update as the service would publish it: a part of a network names its base."""
        if not self.parts:
            return update
        path = self.folder / "next.safetensors"
        path.write_bytes(update)
        with TensorFile(path) as file:
            arrays = {name: file.read(name) for name in file.names}
        write_file(path, arrays, {BASE_KEY: self.ref("mdl_base")["digest"]})
        return path.read_bytes()

    def _prototype(self) -> dict[str, Any]:
        return {"name": "main", "architecture": self.architecture, "options": self.options, **self.parts}

    def want_gan(self, **changes: Any) -> None:
        """Ask for a federated generator first."""
        self.gan_plan = {
            "kind": "fedgan",
            "options": {"latent": 4, "hidden": [8]},
            "critic_options": {"hidden": [8]},
            "input_range": [-4.0, 4.0],
            "rounds": 2,
            "epochs": 2,
            "batch_size": 8,
            "optimizer": {"kind": "adam", "lr": 0.01, "betas": [0.0, 0.9]},
            **changes,
        }
        networks = {
            "generator": registry.initialise("gen-mlp", self.gan_plan["options"], self.task, 7),
            "critic": registry.initialise("disc-mlp", self.gan_plan["critic_options"], self.task, 8),
        }
        path = self.folder / "gan.safetensors"
        codec.save_state(torch.nn.ModuleDict(networks), path)
        self.models["mdl_gan1"] = path.read_bytes()

    def fault(self, method: str, pattern: str, answer: Callable[[httpx.Request], httpx.Response]) -> None:
        """Answer the next matching request with `answer(request)`, which may raise."""
        self.faults.append((method, pattern, answer))

    def sent(self, method: str, pattern: str) -> list[httpx.Request]:
        """Return the requests that came."""
        return [r for r in self.requests if r.method == method and re.fullmatch(pattern, r.url.path)]

    def client(self) -> httpx.Client:
        """Return an HTTP client that talks to this service."""
        return httpx.Client(transport=httpx.MockTransport(self.handle))

    def handle(self, request: httpx.Request) -> httpx.Response:
        """Answer one request."""
        request.read()
        self.requests.append(request)
        for fault in self.faults:
            if fault[0] == request.method and re.fullmatch(fault[1], request.url.path):
                self.faults.remove(fault)
                return fault[2](request)
        route = (request.method, re.sub(r"(fed|rnd|mdl)_\w+", r"\1", request.url.path))
        joining = route in (("POST", "/v1/federations/fed/clients"), ("GET", "/v1/federations/fed/card"))
        if not joining and request.headers.get("Authorization") != f"Bearer {self.token}":
            return problem("unauthorized")
        routes = {
            ("GET", "/v1/federations/fed/card"): self._card,
            ("POST", "/v1/federations/fed/clients"): self._enrol,
            ("PUT", "/v1/declaration"): self._declaration,
            ("GET", "/v1/assignment"): self._assignment,
            ("GET", "/v1/models/mdl/weights"): self._weights,
            ("PUT", "/v1/rounds/rnd/update"): self._update,
            ("POST", "/v1/rounds/rnd/heartbeat"): self._heartbeat,
            ("PUT", "/v1/federations/fed/discriminator"): self._discriminator,
            ("PUT", "/v1/federations/fed/gan"): self._gan,
        }
        return routes[route](request) if route in routes else problem("not-found")

    def ref(self, model_id: str) -> dict[str, Any]:
        """Return a ModelRef."""
        data = self.models[model_id]
        digest = f"sha256-{hashlib.sha256(data).hexdigest()}"
        return {"id": model_id, "digest": digest, "size": len(data), "url": f"/v1/models/{model_id}/weights"}

    def _task(self) -> dict[str, Any]:
        return TASK | {"input": self.task.input.model_dump()} | ({"classes": self.classes} if self.classes else {})

    def _card(self, request: httpx.Request) -> httpx.Response:
        if request.headers.get("Authorization") != "Bearer pst_join_1":
            return problem("unauthorized")
        body = {
            "federation_id": FED,
            "federation_name": "toy",
            "state": self.state,
            "task": self._task(),
            "prototypes": [self._prototype()],
            "wants_label_counts": False,
            "local": self.plan,
        }
        if self.architecture == "custom":
            infos = parse_header(self.models["mdl_0"], len(self.models["mdl_0"])).tensors
            body["tensors"] = {"main": {name: {"dtype": i.dtype, "shape": i.shape} for name, i in infos.items()}}
        return httpx.Response(200, json=body)

    def _heartbeat(self, request: httpx.Request) -> httpx.Response:
        self.beats.append(json.loads(request.content))
        body = {
            "round_id": f"rnd_{self.round}",
            "round": self.round,
            "state": "collecting",
            "answered": False,
            "deadline_at": NOW,
            "closes_at": NOW,
            "heartbeat_seconds": self.heartbeat_seconds,
        }
        return httpx.Response(200, json=body)

    def _enrol(self, request: httpx.Request) -> httpx.Response:
        if request.headers.get("Authorization") != "Bearer pst_join_1":
            return problem("unauthorized")
        self.name = json.loads(request.content)["name"]
        self.token = "pst_dev_secret"
        body = {"client_id": "cli_1", "federation_id": FED, "token": self.token, "prototype": "main"}
        return httpx.Response(201, json=body)

    def _declaration(self, request: httpx.Request) -> httpx.Response:
        samples = json.loads(request.content)["num_samples"]
        return httpx.Response(200, json={"client_id": "cli_1", "num_samples": samples, "enrolled_samples": 1})

    def _assignment(self, request: httpx.Request) -> httpx.Response:
        body: dict[str, Any] = {
            "federation_id": FED,
            "federation_name": "toy",
            "state": self.state,
            "task": self._task(),
            "prototype": self._prototype(),
            "seed": 5,
            "client_name": self.name,
        }
        if self.state == "finished" or self.round > self.rounds:
            body |= {"state": "finished", "action": "done", "model": self.ref(self.current), "accuracy": 0.75}
            body |= {"base": self.ref("mdl_base")} if self.parts else {}
        elif self.gan_plan is not None and self.gan_round <= self.gan_plan["rounds"]:
            body |= {
                "state": "training_generator",
                "action": "train_gan",
                "model": self.ref(f"mdl_gan{self.gan_round}"),
                "plan": self.gan_plan,
                "privacy": self.plan.get("privacy"),
                "gan_round": self.gan_round,
                "deadline_at": NOW,
                "upload_url": f"/v1/federations/{FED}/gan",
            }
        elif self.want_discriminator and self.discriminator is None:
            body |= {
                "state": "collecting_discriminators",
                "action": "train_discriminator",
                "generator": {
                    "model": self.ref("mdl_gen"),
                    "architecture": "gen-mlp",
                    "options": {"latent": 4, "hidden": [8]},
                    "input_range": [-4.0, 4.0],
                },
                "plan": {"architecture": "disc-mlp", "options": {"hidden": [8]}, "epochs": 2},
                "privacy": self.plan.get("privacy"),
                "link": "double_sigmoid",
                "upload_url": f"/v1/federations/{FED}/discriminator",
            }
        else:
            body |= {
                "action": "train",
                "round": {
                    "id": f"rnd_{self.round}",
                    "index": self.round,
                    "total": self.rounds,
                    "deadline_at": NOW,
                    "heartbeat_seconds": self.heartbeat_seconds,
                },
                "model": self.ref(self.current),
                "extras": {name: self.ref(model_id) for name, model_id in self.extras.items()},
                "local": self.plan,
                "upload_url": f"/v1/rounds/rnd_{self.round}/update",
            }
        return httpx.Response(200, json=body)

    def _weights(self, request: httpx.Request) -> httpx.Response:
        model_id = request.url.path.split("/")[3]
        data, etag = self.models[model_id], f'"{self.ref(model_id)["digest"]}"'
        if request.headers.get("If-None-Match") == etag:
            return httpx.Response(304, headers={"ETag": etag})
        span = re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range", ""))
        if span and request.headers.get("If-Range") == etag:
            return httpx.Response(206, content=data[int(span[1]) :], headers={"ETag": etag})
        return httpx.Response(200, content=data, headers={"ETag": etag})

    def _update(self, request: httpx.Request) -> httpx.Response:
        number = int(request.url.path.split("/")[3].removeprefix("rnd_"))
        answer = self._receipt(request) | {"round_id": f"rnd_{number}", "round": number}
        if request.content in self.updates:
            return httpx.Response(200, json=answer)
        if number != self.round:
            return problem("round-closed")
        header, base = (parse_header(data, len(data)) for data in (request.content, self.models[self.current]))
        assert header.metadata["base_model"] == self.current
        self.updates.append(request.content)
        if header.tensors.keys() == base.tensors.keys():  # a method's other tensors are no model
            self.current = f"mdl_{self.round}"
            self.models[self.current] = self._next_model(request.content)
        self.round += 1
        return httpx.Response(201, json=answer)

    def _discriminator(self, request: httpx.Request) -> httpx.Response:
        self.discriminator = request.content
        return httpx.Response(201, json=self._receipt(request))

    def _gan(self, request: httpx.Request) -> httpx.Response:
        header = parse_header(request.content, len(request.content))
        base = parse_header(self.models["mdl_gan1"], len(self.models["mdl_gan1"]))
        assert header.metadata["base_model"] == f"mdl_gan{self.gan_round}"
        assert header.tensors == base.tensors
        self.gans.append(request.content)
        answer = self._receipt(request) | {"gan_round": self.gan_round}
        self.gan_round += 1
        self.models[f"mdl_gan{self.gan_round}"] = request.content
        return httpx.Response(201, json=answer)

    @staticmethod
    def _receipt(request: httpx.Request) -> dict[str, Any]:
        header = parse_header(request.content, len(request.content))
        return {
            "id": "upd_1",
            "client_id": "cli_1",
            "digest": f"sha256-{hashlib.sha256(request.content).hexdigest()}",
            "size": len(request.content),
            "num_samples": int(header.metadata["num_samples"]),
            "received_at": NOW,
        }


@pytest.fixture(autouse=True)
def insecure_http(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients talk plain HTTP to the stand-in, whose name is no machine's."""
    monkeypatch.setenv("POTSTILL_INSECURE_HTTP", "1")


@pytest.fixture
def service(tmp_path: Path) -> FakeService:
    folder = tmp_path / "service"
    folder.mkdir()
    return FakeService(folder)


@pytest.fixture
def blobs() -> tuple[np.ndarray, np.ndarray]:
    """Two well separated clouds, inputs [40, 2] and labels [40]."""
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    x = rng.normal(size=(40, 2)).astype("float32") + np.where(y == 1, 2.0, -2.0)[:, None].astype("float32")
    return x, y


@pytest.fixture
def take_part(service: FakeService, tmp_path: Path, blobs: tuple[np.ndarray, np.ndarray]) -> Callable[..., RunReport]:
    """Return train_and_push, tied to the fake service and a folder of this test."""

    def run(dataset: Any = blobs, **options: Any) -> RunReport:
        settings: dict[str, Any] = {
            "federation": FED,
            "join_token": "pst_join_1",
            "name": "ward-7",
            "state_dir": tmp_path / "device",
            "progress": False,
            "device": "cpu",
            "http_client": service.client(),
        }
        with settings["http_client"]:
            return train_and_push(URL, dataset, **settings | options)

    return run
