"""A service with a worker in this process: federations whose devices send noise, and all that follows for real."""

from typing import Any

import numpy as np

from contract.layout import manifest
from contract.tensors import DTYPES, FLOATS, TensorFile
from potstill.replay.computing import Computers
from potstill.replay.run import Report, replay
from potstill.replay.sources import Installation
from service.operations.progress import reading
from service.persistence.tables import FederationRow
from tests.service.world import Fed, World
from worker.ledger import Claimed, Ledger
from worker.runner import Runner


class Plant:
    """A service with a worker in this process, whose child runs the networks; and what replays them."""

    def __init__(self, world: World):
        self.world = world
        self.ledger = Ledger(world.settings)
        self.runner = Runner(self.ledger)
        self.child = self.runner._child
        self.source, self.computers = Installation(world.settings), Computers()

    def close(self) -> None:
        self.computers.close()
        self.source.close()
        self.child.close()
        self.ledger.leave()
        self.world.close()

    def claim(self) -> Claimed:
        job = self.ledger.claim()
        assert job is not None
        return job

    # ------------------------------------------------------------------------------------------------ a federation
    def begin(self, recipe: Any, names: str = "abcd", test: bool = False, **changes: Any) -> Any:
        """Return a federation whose first round collects, or whose clients are to train discriminators.

        Args:
            test: give it a test set, too.
        """
        world = self.world
        numbers = np.random.default_rng(3)
        labels = numbers.integers(0, 3, 24).astype(np.int64)
        inputs = numbers.normal(size=(24, 2)).astype(np.float32)
        sets = {"unlabeled": world.dataset(inputs=inputs)["id"]}
        sets["validation"] = world.dataset(inputs=inputs, labels=labels)["id"]
        if test:
            numbers = np.random.default_rng(changes.get("seed"))
            drawn = {"inputs": numbers.normal(size=(300, 2)), "labels": numbers.integers(0, 3, 300)}
            sets["test"] = world.dataset(inputs=drawn["inputs"].astype(np.float32), labels=drawn["labels"])["id"]
        rounds = {"total": 2, "min_clients": len(names), **changes.pop("rounds", {})}
        changes = {"retention": {"updates": "all"}} | changes
        fed = world.create(recipe=recipe, rounds=rounds, datasets=sets, **changes)
        for name in names:
            world.enrol(fed, name, num_samples=100)
        world.ok("POST", f"/v1/federations/{fed.id}/start")
        self.runner.drain()
        return fed

    def answer(self, fed: Fed) -> None:
        """Have everybody who is asked deliver: what they got with noise, and what the plan wants beside it."""
        world = self.world
        with world.store.read() as session:
            config = reading.config_of(session.get_one(FederationRow, fed.id))
        for number, (name, device) in enumerate(sorted(fed.devices.items())):
            task = world.assignment(device)
            if task["action"] == "train_discriminator":
                url, note = task["upload_url"], {"num_samples": "10"}
                listed = world.ok("GET", f"/v1/models?federation={fed.id}")["items"]
                (network,) = [each for each in listed if each["role"] == "discriminator"]
                given = world.op("GET", f"/v1/models/{network['id']}/weights").content
            elif task["action"] == "train":
                url = task["upload_url"]
                note = {"num_samples": str(4 + 3 * number), "base_model": task["model"]["id"]}
                given = world.site.request("GET", task["model"]["url"], token=device.token).content
            else:
                continue
            path = world.blobs.scratch.temp()
            path.write_bytes(given)
            numbers, arrays = np.random.default_rng(number), {}
            with TensorFile(path) as file:
                wanted = manifest(config.local, file.header, 3) if task["action"] == "train" else file.header
                for tensor, info in wanted.tensors.items():
                    base = file.read(tensor) if tensor in file.names else np.zeros(info.shape)
                    noise = numbers.normal(size=info.shape) if info.dtype in FLOATS else 1
                    arrays[tensor] = np.asarray(base + 0.3 * noise, DTYPES[info.dtype])
            path.unlink()
            response = world.push(fed, name, world.forge.pack(arrays, note), url=url)
            assert response.status_code == 201, response.text

    def go_on(self, fed: Fed, until: str = "finished") -> None:
        """Answer and work until the federation is over."""
        for _ in range(9):
            if self.world.show(fed)["state"] == until:
                return
            self.answer(fed)
            self.runner.drain()
        raise AssertionError(self.world.show(fed))

    def again(self, fed: Fed, since: int = 0) -> list[Report]:
        """Replay all that a federation published, but for the first documents."""
        return [replay(each, self.source, self.computers) for each in self.source.all_of(fed.id)[since:]]
