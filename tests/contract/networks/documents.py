"""Small documents, and changes of them."""

import copy
import json
from typing import Any

import numpy as np

GOOD: dict[str, Any] = {
    "version": 1,
    "role": "classifier",
    "input": {"shape": [4], "dtype": "float32"},
    "output": [3],
    "tensors": [
        {"name": "fc.weight", "dtype": "float32", "shape": [3, 4], "kind": "parameter"},
        {"name": "fc.bias", "dtype": "float32", "shape": [3], "kind": "parameter"},
        {"name": "seen", "dtype": "int64", "shape": [], "kind": "buffer"},
    ],
    "train": {
        "nodes": [
            {"name": "count", "op": "aten.add_.Tensor", "args": [{"tensor": "seen"}, 1]},
            {"name": "drop", "op": "aten.dropout.default", "args": [{"node": "input"}, 0.5, True]},
            {
                "name": "fc",
                "op": "aten.linear.default",
                "args": [{"node": "drop"}, {"tensor": "fc.weight"}, {"tensor": "fc.bias"}],
            },
        ],
        "output": "fc",
        "features": "drop",
    },
    "eval": {
        "nodes": [
            {"name": "same", "op": "aten.alias.default", "args": [{"node": "input"}]},
            {
                "name": "fc",
                "op": "aten.linear.default",
                "args": [{"node": "same"}, {"tensor": "fc.weight"}, {"tensor": "fc.bias"}],
            },
        ],
        "output": "fc",
        "features": "same",
    },
}


def changed(path: str, value: Any, document: dict[str, Any] = GOOD) -> dict[str, Any]:
    """Return a document with another value in one place, such as ``train.nodes.0.op``."""
    made = copy.deepcopy(document)
    *steps, last = path.split(".")
    place: Any = made
    for step in steps:
        place = place[int(step) if isinstance(place, list) else step]
    if isinstance(place, list):
        place[int(last) : int(last) + 1] = [value]
    else:
        place[last] = value
    return made


def text(document: dict[str, Any] = GOOD) -> bytes:
    """Return a document as it travels."""
    return json.dumps(document).encode()


def layers(
    sizes: list[int], role: str = "classifier", *, head: str | None = None, norm: bool = False, end: str | None = None
) -> dict[str, Any]:
    """Return a document of linear layers with ReLU between them, on vectors; the last one is the head.

    Args:
        sizes: of the input and of each layer.
        role: a discriminator's output is one number a sample.
        head: name of the last layer.
        norm: BatchNorm before the last layer.
        end: a function at the end, such as tanh.
    """
    graphs: dict[str, Any] = {}
    names = [f"l{number}" for number in range(len(sizes) - 2)] + [head or "last"]
    tensors = []
    for mode in ("train", "eval"):
        nodes: list[dict[str, Any]] = [{"name": "x", "op": "aten.alias.default", "args": [{"node": "input"}]}]
        for number, name in enumerate(names):
            if number:
                nodes.append({"name": f"r{number}", "op": "aten.relu.default", "args": [{"node": nodes[-1]["name"]}]})
            if norm and number == len(names) - 1:
                held = [{"tensor": f"bn.{each}"} for each in ("weight", "bias", "running_mean", "running_var")]
                given = [{"node": nodes[-1]["name"]}, *held, mode == "train", 0.1, 1e-5, False]
                nodes.append({"name": "bn", "op": "aten.batch_norm.default", "args": given})
            features = nodes[-1]["name"]
            read = [{"node": features}, {"tensor": f"{name}.weight"}, {"tensor": f"{name}.bias"}]
            nodes.append({"name": name, "op": "aten.linear.default", "args": read})
        if end is not None:
            nodes.append({"name": "end", "op": f"aten.{end}.default", "args": [{"node": nodes[-1]["name"]}]})
        if role == "discriminator":
            nodes.append({"name": "score", "op": "aten.squeeze.dim", "args": [{"node": nodes[-1]["name"]}, -1]})
        graphs[mode] = {"nodes": nodes, "output": nodes[-1]["name"]}
        if role == "classifier":
            graphs[mode]["features"] = features
    for name, width, made in zip(names, sizes[:-1], sizes[1:], strict=True):
        tensors.append({"name": f"{name}.weight", "dtype": "float32", "shape": [made, width], "kind": "parameter"})
        tensors.append({"name": f"{name}.bias", "dtype": "float32", "shape": [made], "kind": "parameter"})
    if norm:
        for each in ("weight", "bias", "running_mean", "running_var"):
            kind = "buffer" if each.startswith("running") else "parameter"
            tensors.append({"name": f"bn.{each}", "dtype": "float32", "shape": [sizes[-2]], "kind": kind})
    output = [] if role == "discriminator" else [sizes[-1]]
    return {"role": role, "input": {"shape": [sizes[0]]}, "output": output, "tensors": tensors, **graphs}


def weights(document: dict[str, Any], seed: int = 0) -> dict[str, Any]:
    """Return first weights of such a document."""
    numbers = np.random.default_rng(seed)
    made = {}
    for tensor in document["tensors"]:
        drawn = numbers.normal(size=tensor["shape"]) * 0.3
        made[tensor["name"]] = (
            np.asarray(drawn, np.float32) if "running" not in tensor["name"] else np.ones(tensor["shape"], np.float32)
        )
    return made
