"""Real texts without a download: whose documentation is a sentence from? Four devices have a library each."""

import argparse
import ast
import importlib.util
import re
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from client_sdk import train_and_push
from contract.tensors import write_file
from contract.tokenizer import HashingTokenizer
from contract.wire.federations import FederationCreate, FederationCreated
from potstill.connection import operator

LIBRARIES = ("matplotlib", "scipy", "sklearn", "torch")  # installed with '.[worker,client,demo]'
EACH, VOCABULARY, LENGTH = 500, 2048, 16


def sentences(library: str) -> list[str]:
    """Return what `EACH` classes and functions of a package say of themselves; nothing of it is imported."""
    spec = importlib.util.find_spec(library)
    assert spec is not None and spec.origin is not None
    found: dict[str, None] = {}  # in their order, each once
    for file in sorted(Path(spec.origin).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_bytes())) if "tests" not in file.parts else ():
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                first = (ast.get_docstring(node) or "").split("\n\n")[0]
                words = re.findall(r"[A-Za-z]+", re.sub(rf"(?i){library}", "", first))
                if len(words) >= 6:
                    found[" ".join(words)] = None
        if len(found) >= EACH:
            break
    return list(found)[:EACH]


def create(folder: Path, x: np.ndarray, y: np.ndarray, rounds: int) -> FederationCreated:
    """Register the server's texts, create a federation that distils, and start it."""
    write_file(folder / "server.safetensors", {"inputs": x[:400]})  # unlabelled: the devices' models vote on them
    write_file(folder / "test.safetensors", {"inputs": x[400:800], "labels": y[400:800]})
    stamp = time.strftime("%H%M%S")  # names are unique: it can be run again
    with operator() as client:
        server = client.add_dataset(f"text-server-{stamp}", folder / "server.safetensors")
        test = client.add_dataset(f"text-test-{stamp}", folder / "test.safetensors")
        body = {
            "name": f"text-{stamp}",
            "task": {
                "num_classes": len(LIBRARIES),
                "classes": list(LIBRARIES),
                "input": {"shape": [LENGTH], "dtype": "int64"},
            },
            "prototypes": [{"architecture": "lstm", "options": {"vocab_size": VOCABULARY}}],
            "recipe": {"name": "feddf", "options": {"schedule": {"epochs": 3}}},
            "local": {"optimizer": {"kind": "adam", "lr": 0.005}, "epochs": 2, "batch_size": 32},
            "rounds": {"total": rounds, "min_clients": len(LIBRARIES), "min_updates": len(LIBRARIES)},
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
    texts = [(text, label) for label, library in enumerate(LIBRARIES) for text in sentences(library)]
    order = np.random.default_rng(0).permutation(len(texts))
    # Both ends turn words into ids by the same hash, so there is no vocabulary to agree on.
    ids = HashingTokenizer(VOCABULARY, LENGTH).encode_all([text for text, _ in texts])
    x, y = ids[order], np.array([label for _, label in texts])[order]
    print(f"{len(texts)} sentences; one of {LIBRARIES[y[0]]}: {texts[order[0]][0][:70]!r}")

    with tempfile.TemporaryDirectory() as temporary, operator() as client:
        folder = Path(temporary)
        federation = create(folder, x, y, rounds)

        def device(number: int) -> None:
            """Most of a device's texts are of one library."""
            own = np.arange(800, len(y))
            own = own[(y[own] == number) | (own % 10 == number)]
            train_and_push(
                client.url,
                (x[own], y[own]),
                federation=federation.id,
                join_token=federation.join_token,
                name=f"device-{LIBRARIES[number]}",
                classes=list(LIBRARIES),  # compared with the federation's, in the order of the labels
                state_dir=folder / f"device-{number}",
                device="cpu",
                progress=False,
            )

        with ThreadPoolExecutor(len(LIBRARIES)) as pool:
            list(pool.map(device, range(len(LIBRARIES))))
        for each in sorted(client.rounds(federation.id).items, key=lambda each: each.index):
            print(f"round {each.index}: accuracy {each.metrics['accuracy']:.3f}")


if __name__ == "__main__":
    main()
