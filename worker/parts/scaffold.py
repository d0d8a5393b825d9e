"""SCAFFOLD, the server's lines (Karimireddy et al. 2020, Alg. 1, lines 16 and 17). float64.

Symbols: x model, c server control variate, S participants, N registered clients, dy_i = y_i - x, dc_i = c_i+ - c_i.
Only parameters have control variates; buffers are averaged by n_k, integers take the maximum.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from contract.tensors import Header, TensorInfo, TensorWriter
from worker.parts.arrays import Float, finite, floats, option, stacked
from worker.parts.blocks import Readers, blocks, header_of, integers, is_parameter, like, model_writer, narrow
from worker.parts.errors import PartError
from worker.parts.fuse import Source, contributors, shares

CONTROL = "control."
"""Prefix of the control variates' tensors, in an update (dc_i) and in the server's file (c)."""


@dataclass(frozen=True)
class ServerState:
    """The server's model x and control variate c, of one shape."""

    x: Float
    c: Float


def server_step(
    x: ArrayLike,
    c: ArrayLike,
    delta_y: Sequence[ArrayLike],
    delta_c: Sequence[ArrayLike],
    clients_total: int,
    lr: float = 1.0,
    num_samples: Sequence[float] | None = None,
) -> ServerState:
    """Return x + eta_g sum_i p_i dy_i and c + (1/N) sum_i dc_i, p_i = 1/|S|.

    If every client started at c_i = 0, then c = (1/N) sum_i c_i after every round.

    Args:
        x: [...].
        c: [...].
        delta_y: dy_i [...] of each participant.
        delta_c: dc_i [...] of each participant.
        clients_total: N, all registered clients.
        lr: eta_g.
        num_samples: n_i, to weight dy by n_i as some public codes do; then a participant with n_i = 0 counts in neither
            sum. dc is never weighted. None: the paper's uniform mean.

    Raises:
        PartError: no_participants, schema_mismatch, non_finite, bad_counts (N below |S|), bad_option (lr), bad_weight,
            no_positive_weight.
    """
    option("the server's learning rate", lr, open_low=True)
    weights = [1.0] * len(delta_y) if num_samples is None else list(num_samples)
    if not len(delta_y) == len(delta_c) == len(weights):
        raise PartError("schema_mismatch", "there must be one delta_y, one delta_c and one number of samples a client")
    if len(delta_y) == 0:
        raise PartError("no_participants", "nobody took part; x and c stay as they are")
    _check_total(clients_total, len(delta_y))
    kept = contributors(weights)
    moves, controls = stacked("delta_y", delta_y, kept), stacked("delta_c", delta_c, kept)
    start, control = finite("x", floats("x", x)), finite("c", floats("c", c))
    if not start.shape == control.shape == moves.shape[1:] == controls.shape[1:]:
        raise PartError("schema_mismatch", "x, c, delta_y and delta_c must have one shape")
    parts = np.asarray(shares([weights[i] for i in kept]))
    return ServerState(start + lr * _weighted(parts, moves), control + controls.sum(axis=0) / clients_total)


def _weighted(parts: Float, values: Float) -> Float:
    return np.asarray(np.tensordot(parts, values, axes=1))


def _check_total(clients_total: int, participants: int) -> None:
    if clients_total < max(participants, 1):
        raise PartError(
            "bad_counts", f"{participants} participants of {clients_total} registered clients; N counts all of them"
        )


def server_step_files(
    sources: Sequence[Source],
    previous: Path,
    control: Path | None,
    output: Path,
    control_output: Path,
    *,
    clients_total: int,
    lr: float = 1.0,
    n_weighted: bool = False,
) -> list[str]:
    """Make the server's step on files, block by block, and return who contributed.

    Args:
        sources: an update each: the model's tensors after local training (y_i) and ``control.<parameter>`` (dc_i);
            weight n_i. Those with n_i = 0 are not read.
        previous: file of x; its metadata names the buffers.
        control: file of c, ``control.<parameter>``; None for zeros.
        output: file of the new x to make.
        control_output: file of the new c to make.
        clients_total: N.
        lr: eta_g.
        n_weighted: weight dy by n_i; the buffers always are.

    Raises:
        PartError: as `server_step`.
    """
    option("the server's learning rate", lr, open_low=True)
    base = header_of(previous)
    kept = contributors([source.weight for source in sources])
    ordered = sorted((sources[i] for i in kept), key=lambda source: source.name)
    _check_total(clients_total, len(ordered))
    by_samples = np.asarray(shares([source.weight for source in ordered]))
    parts = by_samples if n_weighted else np.full(len(ordered), 1.0 / len(ordered))
    names = {CONTROL + name: name for name in base.tensors if is_parameter(base, name)}
    infos = like(base, names, "F32")
    files = [(f"update of {source.name}", source.path) for source in ordered]
    with Readers(files, _with_controls(base, infos)) as updates:
        with Readers([("the model", previous)], base) as old, model_writer(output, base) as writer:
            for block in blocks(base, len(ordered) + 2):
                if not block.floating:
                    writer.write(block.name, integers(updates.raw(block)))
                    continue
                values = updates.floats(block)
                if block.parameter:
                    start = old.floats(block)[0]
                    new = start + lr * _weighted(parts, values - start)
                else:
                    new = _weighted(by_samples, values)
                writer.write(block.name, narrow(block.name, new, block.dtype))
        _write_control(updates, base, infos, control, control_output, clients_total)
    return [source.name for source in ordered]


def _write_control(
    updates: Readers,
    base: Header,
    infos: dict[str, tuple[str, tuple[int, ...]]],
    control: Path | None,
    output: Path,
    clients_total: int,
) -> None:
    files = [] if control is None else [("the server's control variate", control)]
    with Readers(files, _header(infos)) as old, TensorWriter(output, infos) as writer:
        for block in blocks(base, len(updates) + 2, lambda name: is_parameter(base, name)):
            change = updates.floats(block, CONTROL).sum(axis=0) / clients_total
            start = old.floats(block, CONTROL)[0] if len(old) else np.zeros(block.count)
            writer.write(CONTROL + block.name, narrow(CONTROL + block.name, start + change, "F32"))


def _header(infos: dict[str, tuple[str, tuple[int, ...]]]) -> Header:
    return Header({name: TensorInfo(dtype, shape, 0, 0) for name, (dtype, shape) in infos.items()})


def _with_controls(base: Header, infos: dict[str, tuple[str, tuple[int, ...]]]) -> Header:
    return Header(base.tensors | _header(infos).tensors, base.metadata)
