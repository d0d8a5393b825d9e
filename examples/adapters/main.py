"""Devices train low-rank adapters of a network that the server has trained: they send a fortieth of its bytes."""

import argparse
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

from client_sdk import train_and_push
from contract.nn.codec import save_state
from contract.nn.registry import build
from contract.tensors import write_file
from contract.tokenizer import HashingTokenizer
from contract.wire.federations import FederationCreate, FederationCreated, Prototype, Task
from potstill.connection import operator

DEVICES, TOPICS, VOCABULARY, LENGTH = 4, 4, 2048, 12
TASK = {"num_classes": TOPICS, "input": {"shape": [LENGTH], "dtype": "int64"}}
OPTIONS = {"vocab_size": VOCABULARY}


def texts(count: int, seed: int, shift: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return token ids [N, L] of made-up texts and their topics [N]: every third word or so is one of its topic's.

    Devices write otherwise than the server: of a topic's 60 words they use those that `shift` says.
    """
    random = np.random.default_rng(seed)
    topics = random.integers(0, TOPICS, count)
    lines = []
    for topic in topics:
        own = random.random(LENGTH) < 0.35
        of_topic = 1000 * (topic + 1) + shift + random.integers(0, 30, LENGTH)
        lines.append(" ".join(f"w{number}" for number in np.where(own, of_topic, random.integers(0, 300, LENGTH))))
    return HashingTokenizer(VOCABULARY, LENGTH).encode_all(lines), topics.astype(np.int64)


def pretrain(path: Path) -> None:
    """Train `transformer-tiny`, without adapters, on what the server has; write its weights."""
    torch.manual_seed(0)
    prototype = Prototype.model_validate({"architecture": "transformer-tiny", "options": OPTIONS})
    module = build(prototype.architecture, prototype.options, task=Task.model_validate(TASK))
    ids, topics = map(torch.from_numpy, texts(640, seed=1))
    optimizer = torch.optim.Adam(module.parameters(), 1e-3)
    for _ in range(3):
        for batch in torch.randperm(len(topics)).reshape(-1, 32):
            optimizer.zero_grad()
            torch.autograd.backward(torch.nn.functional.cross_entropy(module(ids[batch]), topics[batch]))
            optimizer.step()
    save_state(module, path)


def create(folder: Path, rounds: int) -> FederationCreated:
    """Import the server's network; create a federation that trains adapters of it, and start it."""
    pretrain(folder / "base.safetensors")
    ids, topics = texts(600, seed=2, shift=15)
    write_file(folder / "test.safetensors", {"inputs": ids, "labels": topics})
    with operator() as client:
        # The file lacks the adapters: those are drawn from the seed, and begin as no change at all.
        base = client.import_model(folder / "base.safetensors", architecture="transformer-tiny")
        test = client.add_dataset("adapters-test", folder / "test.safetensors")
        adapted = {
            "architecture": "transformer-tiny",
            "options": {**OPTIONS, "lora_rank": 4},
            "trains": ["head.*", "*.lora_*"],
            "initial_model": base.id,
        }
        body = {
            "name": f"adapters-{time.strftime('%H%M%S')}",  # names are unique: it can be run again
            "task": TASK,
            "prototypes": [adapted],
            "recipe": {"name": "fedavg"},
            "local": {"optimizer": {"kind": "adam", "lr": 0.005}, "epochs": 2, "batch_size": 32},
            "rounds": {"total": rounds, "min_clients": DEVICES, "min_updates": DEVICES},
            "datasets": {"test": test.id},
        }
        federation = client.create_federation(FederationCreate.model_validate(body))
        client.start_federation(federation.id)
    return federation


def main() -> None:
    """Run the federation; print its accuracy after each round, and what a device sent."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds

    with tempfile.TemporaryDirectory() as temporary, operator() as client:
        folder = Path(temporary)
        federation = create(folder, rounds)

        def device(number: int) -> None:
            train_and_push(
                client.url,
                texts(150, seed=10 + number, shift=15),
                federation=federation.id,
                join_token=federation.join_token,
                name=f"device-{number}",
                state_dir=folder / f"device-{number}",
                device="cpu",
                progress=False,
            )

        with ThreadPoolExecutor(DEVICES) as pool:
            list(pool.map(device, range(DEVICES)))
        for each in sorted(client.rounds(federation.id).items, key=lambda each: each.index):
            print(f"round {each.index}: accuracy {each.metrics['accuracy']:.3f}")
        trained = client.federation(federation.id).models["main"]
        whole = client.download(trained.id, folder / "whole.safetensors").stat().st_size
        print(f"the whole network has {whole:,} bytes, what is trained {trained.size:,}: 1/{whole / trained.size:.0f}")


if __name__ == "__main__":
    main()
