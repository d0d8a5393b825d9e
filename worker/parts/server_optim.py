"""Server optimisers: the round's average is read as a gradient step and fed to an optimiser with a memory.

Parameters only; buffers (BatchNorm statistics, counters) are copied from the average. Symbols: theta_{t-1} previous
model, avg_t the round's average, beta, eta server learning rate. Arithmetic in float64, results in the tensors' dtypes;
the memory is kept in float32 (float64 for float64 parameters).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from contract.tensors import Header, TensorWriter
from worker.parts.arrays import Float, finite, option
from worker.parts.blocks import Block, Readers, blocks, header_of, like, model_writer, narrow, parameters
from worker.parts.errors import PartError

MOMENTUM, SECOND = "momentum.", "second."
"""Prefixes of the two moments in a state file."""


@dataclass(frozen=True)
class Momentum:
    """FedAvgM (Hsu et al. 2019; FedDF App. C.2).

    Delta = theta - avg; 'sum': v = beta v + Delta; 'ema': v = beta v + (1 - beta) Delta; theta = theta - eta v.
    """

    beta: float = 0.3
    lr: float = 1.0
    form: Literal["sum", "ema"] = "sum"

    def __post_init__(self) -> None:
        option("beta", self.beta, high=1.0)
        option("the server's learning rate", self.lr, open_low=True)
        if self.form not in ("sum", "ema"):
            raise PartError("bad_option", f"momentum form {self.form!r} is not known; use 'sum' or 'ema'")

    @property
    def gain(self) -> float:
        """Return what Delta is multiplied by on entering v."""
        return 1.0 if self.form == "sum" else 1.0 - self.beta


@dataclass(frozen=True)
class Adaptive:
    """FedAdam, FedYogi, FedAdagrad (Reddi et al. 2021, Alg. 2).

    Delta = avg - theta; m = beta1 m + (1 - beta1) Delta; theta = theta + eta m / (sqrt(v) + tau), with v:
    'adagrad' v + Delta^2; 'yogi' v - (1 - beta2) Delta^2 sign(v - Delta^2); 'adam' beta2 v + (1 - beta2) Delta^2.
    m starts at 0 and v at tau^2; there is no bias correction.
    """

    kind: Literal["adam", "yogi", "adagrad"] = "adam"
    lr: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    def __post_init__(self) -> None:
        if self.kind not in ("adam", "yogi", "adagrad"):
            raise PartError("bad_option", f"optimiser {self.kind!r} is not known; use 'adam', 'yogi' or 'adagrad'")
        option("the server's learning rate", self.lr, open_low=True)
        option("beta1", self.beta1, high=1.0)
        option("beta2", self.beta2, high=1.0)
        option("tau", self.tau, open_low=True)


Optimizer = Momentum | Adaptive


# ------------------------------------------------------------------------------------------------- one block of values
def update(
    optimizer: Optimizer, previous: Float, average: Float, momentum: Float | None, second: Float | None
) -> tuple[Float, Float, Float | None]:
    """Return (theta_t, momentum, second moment), each [n], for n values of one parameter; None starts a memory.

    FedAvgM's step is written (1 - eta g) theta + eta g avg - eta beta v, g the gain: in the first round with eta = 1
    and the form 'sum' that is the average exactly.
    """
    old = np.zeros_like(previous) if momentum is None else momentum
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is found by the caller's check
        if isinstance(optimizer, Momentum):
            rate = optimizer.lr * optimizer.gain
            theta = (1.0 - rate) * previous + rate * average - optimizer.lr * optimizer.beta * old
            return theta, optimizer.beta * old + optimizer.gain * (previous - average), None
        delta = average - previous
        moment = optimizer.beta1 * old + (1.0 - optimizer.beta1) * delta
        spread = _second(optimizer, np.full_like(previous, optimizer.tau**2) if second is None else second, delta**2)
        return previous + optimizer.lr * moment / (np.sqrt(spread) + optimizer.tau), moment, spread


def _second(optimizer: Adaptive, old: Float, square: Float) -> Float:
    if optimizer.kind == "adagrad":
        return old + square
    if optimizer.kind == "yogi":
        return old - (1.0 - optimizer.beta2) * square * np.sign(old - square)
    return optimizer.beta2 * old + (1.0 - optimizer.beta2) * square


def _memory_dtype(dtype: str) -> str:
    return "F64" if dtype == "F64" else "F32"


# -------------------------------------------------------------------------------------------------------------- files
def step_files(
    optimizer: Optimizer, previous: Path, average: Path, state: Path | None, output: Path, state_output: Path
) -> None:
    """Make the server's step on files, block by block: the rule of `update`.

    Args:
        optimizer: what to do.
        previous: file of theta_{t-1}; its metadata names the buffers.
        average: file of avg_t.
        state: the memory: ``momentum.<parameter>`` and, for `Adaptive`, ``second.<parameter>``; None at first.
        output: file of theta_t to make.
        state_output: file of the new memory to make.

    Raises:
        PartError: schema_mismatch, non_finite.
    """
    base = header_of(previous)
    prefixes = [MOMENTUM] if isinstance(optimizer, Momentum) else [MOMENTUM, SECOND]
    infos = _memory_infos(base, prefixes)
    memories = [] if state is None else [("the optimiser's memory", state)]
    layout = Header({}) if state is None else _layout_of(state, infos)
    with (
        Readers([("the previous model", previous), ("the average", average)], base, exactly=True) as models,
        Readers(memories, layout) as memory,
    ):
        with model_writer(output, base) as writer:
            for block in blocks(base, 8):
                if block.parameter:
                    theta = _blockwise(optimizer, models, memory, prefixes, block)[0]
                    writer.write(block.name, narrow(block.name, theta, block.dtype))
                else:
                    _copy(models, block, writer)
        with TensorWriter(state_output, infos) as writer:
            for index, prefix in enumerate(prefixes, start=1):
                for block in blocks(base, 8, frozenset(parameters(base)).__contains__):
                    moment = _blockwise(optimizer, models, memory, prefixes, block)[index]
                    assert moment is not None
                    writer.write(prefix + block.name, narrow(block.name, moment, _memory_dtype(block.dtype)))


def _memory_infos(base: Header, prefixes: list[str]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return like(base, {prefix + name: name for prefix in prefixes for name in parameters(base)})


def _layout_of(state: Path, infos: dict[str, tuple[str, tuple[int, ...]]]) -> Header:
    header = header_of(state)
    found = {name: (info.dtype, info.shape) for name, info in header.tensors.items()}
    if found != infos:
        raise PartError("schema_mismatch", "the optimiser's memory does not have exactly the model's parameters")
    return header


def _copy(models: Readers, block: Block, writer: TensorWriter) -> None:
    values = models.raw(block)[1]
    if block.floating:
        finite(f"tensor {block.name!r}", values.astype(np.float64))
    writer.write(block.name, values)


def _blockwise(
    optimizer: Optimizer, models: Readers, memory: Readers, prefixes: list[str], block: Block
) -> tuple[Float, Float, Float | None]:
    previous, average = models.floats(block)
    parts = [memory.floats(block, prefix)[0] if len(memory) else None for prefix in prefixes]
    return update(optimizer, previous, average, parts[0], parts[1] if len(parts) > 1 else None)
