"""A network of one's own, of which the service and the devices need no code: it travels as data."""

import argparse
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from client_sdk import export_network, train_and_push
from contract.tensors import write_file
from contract.wire.federations import FederationCreate, FederationCreated
from potstill.connection import operator

DEVICES = 4


class Crossed(nn.Module):
    """Looks at rows and at columns of an 8x8 image, each with weights of its own; no registered network does."""

    def __init__(self, width: int = 24):
        super().__init__()
        self.rows, self.columns = nn.Linear(8, width), nn.Linear(8, width)
        self.norm, self.head = nn.LayerNorm(16 * width), nn.Linear(16 * width, 10)

    def features(self, images: torch.Tensor) -> torch.Tensor:
        """[B, 1, 8, 8] -> [B, 16 * width]."""
        image = images.squeeze(1)
        both = torch.cat([self.rows(image), self.columns(image.transpose(1, 2))], dim=1)
        features: torch.Tensor = self.norm(torch.relu(both).flatten(1))
        return features

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """[B, 1, 8, 8] -> logits [B, 10]."""
        logits: torch.Tensor = self.head(self.features(images))
        return logits


def create(folder: Path, x: np.ndarray, y: np.ndarray, rounds: int) -> FederationCreated:
    """Register the network and the server's data; create a federation that distils, and start it."""
    torch.manual_seed(0)
    export_network(Crossed(), [1, 8, 8], folder / "crossed.json")  # with crossed.safetensors beside it: first weights
    write_file(folder / "server.safetensors", {"inputs": x[:500]})  # without labels: the devices' models vote on them
    write_file(folder / "test.safetensors", {"inputs": x[500:800], "labels": y[500:800]})
    with operator() as client:
        first = client.import_model(folder / "crossed.safetensors", architecture="custom")
        network = client.register_network(folder / "crossed.json", "crossed", initial_model=first.id)
        server = client.add_dataset("own-network-server", folder / "server.safetensors")
        test = client.add_dataset("own-network-test", folder / "test.safetensors")
        body = {
            "name": f"own-network-{time.strftime('%H%M%S')}",  # names are unique: it can be run again
            "task": {"num_classes": 10, "input": {"shape": [1, 8, 8]}},
            "prototypes": [{"name": "main", "architecture": f"net:{network.name}"}],
            "recipe": {"name": "feddf", "options": {"schedule": {"epochs": 10}}},
            "local": {"optimizer": {"kind": "adam", "lr": 0.002}, "epochs": 5, "batch_size": 32},
            "rounds": {"total": rounds, "min_clients": DEVICES, "min_updates": DEVICES},
            "datasets": {"unlabeled": server.id, "test": test.id},
        }
        federation = client.create_federation(FederationCreate.model_validate(body))
        client.start_federation(federation.id)
    return federation


def main() -> None:
    """Run the federation; print its accuracy after each round."""
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

        def device(number: int) -> None:
            own = 800 + np.flatnonzero((y[800:] - 3 * number) % 10 < 5)  # five of the ten digits
            train_and_push(
                client.url,
                (x[own], y[own]),
                federation=federation.id,
                join_token=federation.join_token,
                name=f"device-{number}",
                state_dir=folder / f"device-{number}",
                device="cpu",
                progress=False,
            )  # nothing here knows the class Crossed: the device builds the network from the service's document

        with ThreadPoolExecutor(DEVICES) as pool:
            list(pool.map(device, range(DEVICES)))
        for each in sorted(client.rounds(federation.id).items, key=lambda each: each.index):
            print(f"round {each.index}: accuracy {each.metrics['accuracy']:.3f}")


if __name__ == "__main__":
    main()
