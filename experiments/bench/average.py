"""The mean of clients' files: ours against numpy's plain float64 mean, and against a loop in plain Python."""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from contract.tensors import write_file
from experiments.bench.measuring import Bench, Figure, timed
from worker.parts.blocks import Source
from worker.parts.fuse import average_files

_ROW = 1024


def files(folder: Path, clients: int, megabytes: float) -> list[Source]:
    """Write clients' models of one tensor; client k has 1 + k samples."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = max(1, round(megabytes * 1e6 / 4 / _ROW))
    found = []
    for number in range(clients):
        path = folder / f"client-{number:03}.safetensors"
        write_file(path, {"weight": np.random.default_rng(number).standard_normal((rows, _ROW), np.float32)})
        found.append(Source(f"client-{number:03}", path, 1.0 + number))
    return found


def in_numpy(sources: Sequence[Source], output: Path) -> None:
    """Average as most would: load everything, sum in float64."""
    states = [load_file(source.path) for source in sources]
    total = sum(source.weight for source in sources)
    mean = {}
    for name in states[0]:
        summed = np.zeros(states[0][name].shape)
        for source, state in zip(sources, states, strict=True):
            summed += state[name].astype(np.float64) * source.weight
        mean[name] = (summed / total).astype(np.float32)
    save_file(mean, output)


def in_python(sources: Sequence[Source], output: Path) -> None:
    """Average value by value, each sum exact."""
    states = [load_file(source.path) for source in sources]
    total, mean = math.fsum(source.weight for source in sources), {}
    for name, first in states[0].items():
        columns = zip(*(state[name].ravel().tolist() for state in states), strict=True)
        summed = [
            math.fsum(value * source.weight for value, source in zip(column, sources, strict=True)) / total
            for column in columns
        ]
        mean[name] = np.array(summed, np.float32).reshape(first.shape)
    save_file(mean, output)


def measure(bench: Bench) -> Iterator[Figure]:
    """Both sides read files and write one; what they write is compared."""
    large, times = bench.pick(45.0, 4.0), bench.pick(5, 3)
    for megabytes, what, work in ((large, "numpy, float64, all files in memory", in_numpy), (0.4, "Python", in_python)):
        sources = files(bench.folder / f"{megabytes:g}", 10, megabytes)
        ours, plain = bench.folder / "ours.safetensors", bench.folder / "plain.safetensors"
        title = f"mean of 10 files of {megabytes:g} MB"
        average = partial(average_files, sources, ours)
        average()  # the files are in memory now
        pairs = bench.turns(title, timed(average), timed(partial(work, sources, plain)), times)
        if not np.allclose(load_file(ours)["weight"], load_file(plain)["weight"], rtol=1e-6, atol=1e-7):
            raise RuntimeError(f"{title}: ours and {what} differ")
        yield Figure(title, "s", what, pairs)
