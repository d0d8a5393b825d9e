"""What a device does between two calls, in Python's standard library: data, safetensors, softmax regression."""

import json
import math
import random
import struct
import sys
from pathlib import Path
from typing import Any

Point = tuple[float, float, int]
CENTRES = ((0.0, 1.0), (-1.0, -1.0), (1.0, -1.0))


def points(count: int, seed: int) -> list[Point]:
    """Return points around three centres, with the number of the centre."""
    draw = random.Random(seed)
    found = []
    for number in range(count):
        x, y = CENTRES[number % 3]
        found.append((draw.gauss(x, 0.5), draw.gauss(y, 0.5), number % 3))
    return found


def write(path: str, tensors: dict[str, tuple[str, list[int], bytes]], metadata: dict[str, str]) -> None:
    """Write a safetensors file of (dtype, shape, little-endian values): length of the header, header, values."""
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    end = 0
    for name, (dtype, shape, values) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + len(values)]}
        end += len(values)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # values begin at a multiple of eight
    body = b"".join(values for _, _, values in tensors.values())
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + body)


def read(path: str) -> dict[str, list[float]]:
    """Return the float32 values of a safetensors file by name."""
    data = Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        found[name] = [value for (value,) in struct.iter_unpack("<f", data[8 + length + start : 8 + length + end])]
    return found


def make_data() -> None:
    """Write the device's points, and the server's test set."""
    Path("points.json").write_text(json.dumps(points(60, seed=1)), encoding="utf-8")
    test = points(300, seed=2)
    inputs = struct.pack(f"<{2 * len(test)}f", *(value for x, y, _ in test for value in (x, y)))
    labels = struct.pack(f"<{len(test)}q", *(label for _, _, label in test))
    kinds = {"inputs": ("F32", [len(test), 2], inputs), "labels": ("I64", [len(test)], labels)}
    write("test.safetensors", kinds, {})


def train() -> None:
    """Train the model as the plan in work.json says; write the update."""
    work = json.loads(Path("work.json").read_text(encoding="utf-8"))
    data = json.loads(Path("points.json").read_text(encoding="utf-8"))
    plan, state = work["local"], read("model.safetensors")
    weight, bias = state["1.weight"], state["1.bias"]  # [3, 2] by rows, and [3]
    draw, rate = random.Random(work["round"]["index"]), plan["optimizer"]["lr"]
    for _ in range(plan["epochs"]):
        draw.shuffle(data)
        for start in range(0, len(data), plan["batch_size"]):
            step(weight, bias, data[start : start + plan["batch_size"]], rate)
    tensors = {
        "1.weight": ("F32", [3, 2], struct.pack("<6f", *weight)),
        "1.bias": ("F32", [3], struct.pack("<3f", *bias)),
    }
    write("update.safetensors", tensors, {"num_samples": str(len(data)), "base_model": work["model"]["id"]})


def step(weight: list[float], bias: list[float], batch: list[Point], rate: float) -> None:
    """Take a step of gradient descent on the batch's mean cross-entropy, in place."""
    slope = [0.0] * 9
    for x, y, label in batch:
        powers = [math.exp(weight[2 * c] * x + weight[2 * c + 1] * y + bias[c]) for c in range(3)]
        for c in range(3):
            off = powers[c] / sum(powers) - (c == label)
            for place, value in ((2 * c, x), (2 * c + 1, y), (6 + c, 1.0)):
                slope[place] += off * value / len(batch)
    for place in range(6):
        weight[place] -= rate * slope[place]
    for c in range(3):
        bias[c] -= rate * slope[6 + c]


if __name__ == "__main__":
    {"make-data": make_data, "train": train}[sys.argv[1]]()
