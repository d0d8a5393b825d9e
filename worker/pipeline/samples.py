"""A few of the server's images that divide the clients, with what each of them says and how much it counts."""

import base64
from pathlib import Path
from typing import Any

import numpy as np

from contract.tensors import TensorFile
from worker.parts.arrays import Float
from worker.parts.votes import Ints
from worker.pipeline.heard import Heard
from worker.pipeline.job import Round

MOST = 8
"""Samples of a round, 32 kB of pixels at most."""
MOST_VOTES = 64
"""Clients of each, those that count most."""
SIDE = 32
"""Pixels: larger images are thinned out."""


def divided(votes: Ints) -> Ints:
    """Return which samples, at most `MOST`, divide the clients most; of those that are alike, some from all over.

    Args:
        votes: [K, P], the class that each client votes for.
    """
    alike = np.array([np.unique(column, return_counts=True)[1].max() for column in votes.T], dtype=np.int64)
    order = np.argsort(alike, kind="stable")[:MOST]
    ties = np.flatnonzero(alike == alike[order[-1]])
    needed = int((alike[order] == alike[order[-1]]).sum())
    return np.concatenate([order[: len(order) - needed], ties[np.arange(needed) * len(ties) // needed]])


def strip(
    job: Round, heard: Heard, name: str, names: list[str], votes: Ints, labels: Ints | None
) -> list[dict[str, Any]]:
    """Return samples of a set of images, of which the clients `names` vote [K, P]; none of what are no images."""
    path = {"test": job.spec.datasets.test, "unlabeled": job.spec.datasets.unlabeled}[name]
    shape = job.spec.task.input.shape
    rows, together = heard.rows[name], heard.ensembles.get(name)
    if path is None or len(shape) != 3 or shape[0] not in (1, 3):
        return []
    at = divided(votes)
    pixels = _pixels(path, shape, rows[at], None if together is None else together.weights.shape[1])
    if pixels is None:
        return []
    weights = _weights(job, heard, name, names)
    return [
        {
            "row": int(rows[each]),
            "label": None if labels is None or name != "test" else int(labels[rows[each]]),
            "together": None if together is None else int(together.classes[rows[each]]),
            "votes": _votes(names, votes[:, each], weights[:, each]),
            "image": {
                "channels": shape[0],
                "height": image.shape[1],
                "width": image.shape[2],
                "pixels": _packed(image),
            },
        }
        for each, image in zip(at, pixels, strict=True)
    ]


def _votes(names: list[str], votes: Ints, weights: Float) -> list[dict[str, Any]]:
    first = np.argsort(-weights, kind="stable")[:MOST_VOTES]
    return [
        {"client": names[each], "vote": int(votes[each]), "weight": float(f"{weights[each]:.4g}")} for each in first
    ]


def _weights(job: Round, heard: Heard, name: str, names: list[str]) -> Float:
    """Return how much each client counts in each sample looked at [K, P]: as a teacher, else in the average."""
    rows, together = heard.rows[name], heard.ensembles.get(name)
    if together is not None:
        of = dict(zip(together.names, together.weights[:, rows], strict=True))
        return np.stack([of.get(each, np.zeros(len(rows))) for each in names])
    counted = job.metrics.get("weights", {})
    return np.repeat([[float(counted.get(each, 0.0))] for each in names], len(rows), axis=1)


def _pixels(
    path: Path, shape: list[int], rows: Ints, samples: int | None
) -> np.ndarray[Any, np.dtype[np.uint8]] | None:
    """Return images [n, C, H, W], the darkest value 0 and the lightest 255; None of a set that has other samples."""
    size = int(np.prod(shape))
    with TensorFile(path) as file:
        there = file.info("inputs").shape
        if list(there[1:]) != shape or (samples is not None and there[0] != samples):
            return None
        found = [file.read_block("inputs", int(row) * size, size).reshape(shape) for row in rows]
    values = np.stack(found).astype(np.float32)
    step = max(1, -(-max(shape[1:]) // SIDE))
    values = values[:, :, ::step, ::step]
    low, high = float(values.min()), float(values.max())
    return ((values - low) * (255 / max(high - low, 1e-12))).round().astype(np.uint8)


def _packed(image: np.ndarray[Any, np.dtype[np.uint8]]) -> str:
    """Return an image's bytes, a pixel's channels side by side, as base64."""
    return base64.b64encode(np.ascontiguousarray(image.transpose(1, 2, 0)).tobytes()).decode()
