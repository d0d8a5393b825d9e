"""Devices of a secure round without networks: each says over HTTP what the protocol says; updates are made up."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from client_sdk.secure import party
from contract.secure import primitives
from contract.secure.files import mask_file
from contract.secure.fixed import FixedPoint
from contract.tensors import TensorFile, write_file
from contract.wire.secure import SecureKeys
from tests.service.world import Fed, World
from worker.ledger import Ledger
from worker.parts import secure
from worker.parts.blocks import Source
from worker.pipeline import run

PHASES = ("keys", "shares", "training", "confirm", "reveal")
ACTIONS = ("secure_keys", "secure_shares", "train", "secure_confirm", "secure_reveal")


@dataclass
class Crowd:
    """The devices of a federation in secure rounds.

    Attributes:
        samples: of each device, which it also has declared.
    """

    world: World
    fed: Fed
    folder: Path
    samples: dict[str, int] = field(default_factory=dict)
    own: dict[str, party.Secrets] = field(default_factory=dict)
    plain: dict[str, Path] = field(default_factory=dict)

    @classmethod
    def of(cls, world: World, folder: Path, names: Iterable[str] = "abcd", **changes: Any) -> "Crowd":
        """Return the devices of a federation whose first secure round has opened."""
        rounds = {"total": 2, "secure": {}, **changes.pop("rounds", {})}
        crowd = cls(world, world.running(names, rounds=rounds, **changes), folder)
        crowd.samples = {name: 10 + number for number, name in enumerate(sorted(crowd.fed.devices))}
        for name, samples in crowd.samples.items():
            token = crowd.fed.devices[name].token
            assert world.site.request("PUT", "/v1/declaration", token=token, json={"num_samples": samples}).is_success
        return crowd

    def action(self, name: str) -> str:
        return str(self.world.assignment(self.fed.devices[name])["action"])

    def put(self, name: str, what: str, body: dict[str, Any]) -> httpx.Response:
        url = f"/v1/rounds/{self.world.round(self.fed)['id']}/secure/{what}"
        return self.world.site.request("PUT", url, token=self.fed.devices[name].token, json=body)

    def answer(self, *names: str) -> None:
        """Have devices do what they are told; each is told something."""
        for name in names:
            response = self.say(name, self.world.assignment(self.fed.devices[name]))
            assert response.is_success, response.text

    def say(self, name: str, asked: dict[str, Any]) -> httpx.Response:
        action = asked["action"]
        if action == "secure_keys":
            self.own[name] = self.begin(name, asked)
            keys = party.advertise(self.own[name]).model_dump()
            return self.put(name, "keys", {"session": asked["secure"]["session"], "keys": keys})
        own = self.own[name]
        if action == "secure_shares":
            peers = {who: SecureKeys.model_validate(keys) for who, keys in asked["peers"].items()}
            self.own[name] = own = party.share(own, peers)
            return self.put(name, "shares", {"session": own.session, "sealed": own.sealed})
        if action == "train":
            return self.upload(name, asked)
        if action == "secure_confirm":
            self.own[name], signature = party.confirm(own, asked["survivors"])
            return self.put(name, "confirmation", {"session": own.session, "signature": signature.hex()})
        assert action == "secure_reveal", asked
        self.own[name] = own = party.reveal(own, asked["signatures"], asked["sealed"])
        assert own.revealed is not None
        return self.put(name, "revelation", own.revealed.model_dump())

    def begin(self, name: str, asked: dict[str, Any]) -> party.Secrets:
        told = asked["secure"]
        kept = {key: told[key] for key in ("session", "model", "threshold", "min_group")}
        return party.begin(primitives.fresh(), federation=asked["federation_id"], name=name, **kept)

    def upload(self, name: str, asked: dict[str, Any], seed: int | None = None) -> httpx.Response:
        self.own[name] = own = party.join(self.own[name], asked["members"])
        fixed = _fixed(asked["secure"])
        base = self.base(asked["model"]["id"])
        arrays = self.world.forge.arrays(100 + ord(name[0]) if seed is None else seed)
        self.plain[name] = self.folder / f"plain-{name}"
        write_file(self.plain[name], arrays)
        samples, weight = self.samples[name], self.weight(name, asked["secure"])
        metadata = {"num_samples": str(samples), "base_model": asked["model"]["id"], "session": own.session}
        masked = self.folder / f"masked-{name}"
        mask_file(self.plain[name], base, masked, fixed, weight, party.masks(own, fixed), metadata)
        url = asked["upload_url"]
        token = self.fed.devices[name].token
        return self.world.site.request("PUT", url, token=token, body=masked.read_bytes())

    def weight(self, name: str, told: dict[str, Any]) -> int:
        return self.samples[name] if told["weighted"] else 1

    def base(self, model: str) -> Path:
        path = self.folder / model
        if not path.exists():
            path.write_bytes(self.world.op("GET", f"/v1/models/{model}/weights").content)
        return path

    def reach(self, phase: str, names: Iterable[str] | None = None) -> None:
        """Have everybody, or some, say what comes before a phase."""
        who = sorted(self.fed.devices) if names is None else list(names)
        while (at := self.phase()) != phase:
            self.answer(*(name for name in who if self.action(name) == ACTIONS[PHASES.index(str(at))]))

    def phase(self) -> str | None:
        shown = self.world.round(self.fed)["secure"]
        return None if shown is None else str(shown["phase"])

    def finish(self, names: Iterable[str] | None = None) -> None:
        """Have the present phase and all that follow be answered; the round is closed then."""
        index = self.world.round(self.fed)["index"]
        who = sorted(self.fed.devices) if names is None else list(names)
        while self.world.round(self.fed, index)["state"] == "collecting":
            asked = {name: self.action(name) for name in who}
            speaking = [name for name, action in asked.items() if action in ACTIONS]
            assert speaking, asked
            self.answer(speaking[0])

    def fuse(self) -> None:
        """Do the jobs that wait, as a worker does."""
        ledger = Ledger(self.world.settings)
        while (job := ledger.claim()) is not None:
            spec = ledger.load(job)
            with ledger.inputs(spec, lambda progress: None):
                ledger.publish(job, run(spec, lambda progress: None))
        ledger.leave()

    def wanted(self, model: str, survivors: Iterable[str], plan: dict[str, Any]) -> dict[str, np.ndarray]:
        """Return the mean of the survivors' plain updates in fixed point."""
        target = self.folder / "wanted"
        sources = [Source(name, self.plain[name], self.weight(name, plan)) for name in survivors]
        secure.sum_files(sources, self.base(model), target, _fixed(plan))
        return read(target)


def _fixed(told: dict[str, Any]) -> FixedPoint:
    return FixedPoint(told["clip"], told["bits"], told["modulus_bits"])


def read(path: Path) -> dict[str, np.ndarray]:
    with TensorFile(path) as file:
        return {name: file.read(name) for name in file.names}
