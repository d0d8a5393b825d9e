"""Flower's side of `experiments.bench.simulations`: the same FedAvg in its simulation, by an environment of its own.

python -c 'import flower_app; flower_app.main()' FOLDER CLIENTS ASKED ROUNDS EPOCHS CORES

This folder is in PYTHONPATH, so that Ray's actors import the module once each, as those of a Flower app do. FOLDER has
`data.npz` (a client's `x0`, `y0`, …, `test_x`, `test_y`) and `first.npz`, the first weights in their order, and gets
`rounds.json`: when each round was evaluated, and the accuracy.
"""

import json
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn
from torch.nn import functional

RATE, BATCH = 1e-3, 32


def network() -> nn.Module:
    """Return `cnn-digits`: [B, 1, 8, 8] -> logits [B, 10]."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(32 * 2 * 2, 10)),
    )


@cache
def arrays(path: str) -> dict[str, Any]:
    """Return the data, read once a process."""
    torch.set_num_threads(1)
    with np.load(path) as found:
        return {name: torch.from_numpy(found[name]) for name in found.files}


def client(folder: Path, epochs: int) -> ClientApp:
    """Return what trains a client: Adam anew each round, batches of 32, shuffled anew each epoch."""
    app = ClientApp()

    @app.train()  # type: ignore[untyped-decorator]
    def train(message: Message, context: Context) -> Message:
        data, number = arrays(str(folder / "data.npz")), context.node_config["partition-id"]
        x, y = data[f"x{number}"], data[f"y{number}"]
        net = network()
        net.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimizer = torch.optim.Adam(net.parameters(), RATE)
        for _ in range(epochs):
            for rows in torch.split(torch.randperm(len(x)), BATCH):
                optimizer.zero_grad()
                functional.cross_entropy(net(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        told = {"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord({"num-examples": len(x)})}
        return Message(content=RecordDict(told), reply_to=message)

    return app


def server(folder: Path, clients: int, asked: int, rounds: int) -> ServerApp:
    """Return the server: FedAvg as it comes, the model evaluated on the test set after each round."""
    app = ServerApp()
    data, seen = arrays(str(folder / "data.npz")), list[tuple[float, float]]()

    def evaluate(_: int, record: ArrayRecord) -> MetricRecord:
        net = network()
        net.load_state_dict(record.to_torch_state_dict())
        net.eval()
        with torch.no_grad():
            right = (net(data["test_x"]).argmax(1) == data["test_y"]).float().mean().item()
        seen.append((time.time(), right))
        return MetricRecord({"accuracy": right})

    @app.main()  # type: ignore[untyped-decorator]
    def main(grid: Grid, _: Context) -> None:
        net = network()
        with np.load(folder / "first.npz") as first:
            weights = [torch.from_numpy(first[name]) for name in first.files]
        net.load_state_dict(dict(zip(net.state_dict(), weights, strict=True)))
        strategy = FedAvg(
            fraction_train=asked / clients, fraction_evaluate=0.0, min_train_nodes=asked, min_available_nodes=clients
        )
        strategy.start(grid, ArrayRecord(net.state_dict()), num_rounds=rounds, evaluate_fn=evaluate)
        (folder / "rounds.json").write_text(json.dumps(seen), encoding="utf-8")

    return app


def main() -> None:
    """Run the simulation; every core has a client at a time."""
    folder, clients, asked, rounds, epochs, cores = Path(sys.argv[1]), *map(int, sys.argv[2:7])
    run_simulation(
        server_app=server(folder, clients, asked, rounds),
        client_app=client(folder, epochs),
        num_supernodes=clients,
        backend_config={
            "init_args": {"num_cpus": cores, "include_dashboard": False, "log_to_driver": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
