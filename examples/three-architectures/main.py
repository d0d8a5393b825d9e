"""Devices of three sizes train networks of three kinds; together they teach a larger one on the server (Fed-ET)."""

import argparse
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from client_sdk import train_and_push
from contract.tensors import write_file
from contract.wire.federations import FederationCreate, FederationCreated
from potstill.connection import operator

HEAD = {"common_head": True}  # Fed-ET shares the last layers: every network ends in the same ones
# A device gets the first network whose requirements it meets, so the most demanding one comes first.
PROTOTYPES = [
    {"name": "large", "architecture": "resnet-8", "options": HEAD, "requires": {"memory_mb": 2048}},
    {"name": "medium", "architecture": "cnn-digits", "options": HEAD, "requires": {"memory_mb": 512}},
    {"name": "small", "architecture": "mlp", "options": {"hidden": [64], **HEAD}},
]
MEMORY_MB = [256, 256, 1024, 1024, 4096, 4096]


def create(folder: Path, x: np.ndarray, y: np.ndarray, rounds: int) -> FederationCreated:
    """Register the server's data, create the federation and start it."""
    write_file(folder / "server.safetensors", {"inputs": x[:600]})
    write_file(folder / "test.safetensors", {"inputs": x[600:900], "labels": y[600:900]})
    with operator() as client:
        server = client.add_dataset("three-architectures-server", folder / "server.safetensors")
        test = client.add_dataset("three-architectures-test", folder / "test.safetensors")
        body = {
            "name": f"three-architectures-{time.strftime('%H%M%S')}",  # names are unique: it can be run again
            "task": {"num_classes": 10, "input": {"shape": [1, 8, 8]}},
            "prototypes": PROTOTYPES,
            "server_model": {"architecture": "resnet-8", "options": HEAD},
            "recipe": {"name": "fedet", "options": {"schedule": {"epochs": 10}}},
            "local": {"optimizer": {"kind": "adam", "lr": 0.001}, "epochs": 5, "batch_size": 32},
            "rounds": {"total": rounds, "min_clients": len(MEMORY_MB), "min_updates": len(MEMORY_MB)},
            "datasets": {"unlabeled": server.id, "test": test.id},
        }
        federation = client.create_federation(FederationCreate.model_validate(body))
        client.start_federation(federation.id)
    return federation


def main() -> None:
    """Run the federation; print every network's accuracy after each round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    x = (digits.images[order, None] / 16).astype(np.float32)
    y = digits.target[order].astype(np.int64)

    with tempfile.TemporaryDirectory() as temporary, operator() as client:
        folder = Path(temporary)
        federation = create(folder, x, y, rounds)

        def take_part(number: int) -> None:
            own = np.arange(900 + number, len(y), len(MEMORY_MB))
            own = own[(y[own] - number) % 10 < 6]  # six of the ten digits
            train_and_push(
                client.url,
                (x[own], y[own]),
                federation=federation.id,
                join_token=federation.join_token,
                name=f"device-{number}",
                capabilities={"memory_mb": MEMORY_MB[number]},
                state_dir=folder / f"device-{number}",
                device="cpu",
                progress=False,
            )

        with ThreadPoolExecutor(len(MEMORY_MB)) as pool:
            list(pool.map(take_part, range(len(MEMORY_MB))))
        for device in sorted(client.clients(federation.id).items, key=lambda each: each.name):
            print(f"{device.name}: {device.prototype}")
        for each in sorted(client.rounds(federation.id).items, key=lambda each: each.index):
            models = each.metrics["model"]["prototypes"]
            print(f"round {each.index}:", *(f"{name} {accuracy:.3f}" for name, accuracy in models.items()), sep="  ")


if __name__ == "__main__":
    main()
