"""SCAFFOLD, the server's lines (Karimireddy et al. 2020, Alg. 1, lines 16 and 17). float64.

Symbols: x model, c server control variate, S participants, N registered clients that may train the model,
dy_i = y_i - x, dc_i = c_i+ - c_i.
Only parameters have control variates; buffers are averaged by n_k, integers take the maximum.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from contract.tensors import Header, TensorInfo, TensorWriter
from contract.updates import CONTROL
from worker.parts.arrays import Float, option
from worker.parts.blocks import (
    Readers,
    Source,
    blocks,
    header_of,
    integers,
    like,
    model_writer,
    narrow,
    parameters,
)
from worker.parts.errors import PartError
from worker.parts.fuse import contributors, named, ordered, shares

_Infos = dict[str, tuple[str, tuple[int, ...]]]


# ----------------------------------------------------------------------------------- rules, on a block [m, n] of values
@dataclass(frozen=True)
class ServerStep:
    """x + eta_g sum_i p_i dy_i and c + (1/N) sum_i dc_i, over participants with n_i > 0.

    If every client started at c_i = 0, then c = (1/N) sum_i c_i after every round.

    Attributes:
        num_samples: n_i > 0 [m] of the participants.
        clients_total: N, all registered clients that may train the model.
        lr: eta_g.
        n_weighted: p_i = n_i / sum n as some public codes have it; else the paper's 1/|S|. dc is never weighted.

    Raises:
        PartError: bad_counts (N below |S|), bad_option (lr), bad_weight, no_positive_weight.
    """

    num_samples: Sequence[float]
    clients_total: int
    lr: float = 1.0
    n_weighted: bool = False

    def __post_init__(self) -> None:
        option("the server's learning rate", self.lr, open_low=True)
        participants = len(self.num_samples)
        if self.clients_total < max(participants, 1):
            raise PartError(
                "bad_counts",
                f"{participants} participants of {self.clients_total} registered clients; N counts all of them",
            )
        contributors(self.num_samples)

    @property
    def parts(self) -> Float:
        """Return p_i [m]."""
        clients = len(self.num_samples)
        return np.asarray(shares(self.num_samples)) if self.n_weighted else np.full(clients, 1.0 / clients)

    def model(self, x: Float, moves: Float) -> Float:
        """Return the new model [n] from x [n] and dy_i [m, n]."""
        return np.asarray(x + self.lr * weighted_sum(self.parts, moves))

    def control(self, c: Float, changes: Float) -> Float:
        """Return the new control variate [n] from c [n] and dc_i [m, n]."""
        return np.asarray(c + changes.sum(axis=0) / self.clients_total)


def weighted_sum(parts: Float, values: Float) -> Float:
    """Return sum_i p_i w_i [n] for parts [m] and values [m, n]."""
    return np.asarray(np.tensordot(parts, values, axes=1))


# --------------------------------------------------------------------------------------------------------------- files
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
        PartError: as `ServerStep`; schema_mismatch, non_finite.
    """
    given, base = ordered(sources), header_of(previous)
    num_samples = [source.weight for source in given]
    step = ServerStep(num_samples, clients_total, lr, n_weighted)
    by_samples = np.asarray(shares(num_samples))
    infos = like(base, {CONTROL + name: name for name in parameters(base)}, "F32")
    with Readers(named(given), _with_controls(base, infos)) as updates:
        with Readers([("the model", previous)], base) as old, model_writer(output, base) as writer:
            for block in blocks(base, len(given) + 2):
                if not block.floating:
                    writer.write(block.name, integers(updates.raw(block)))
                    continue
                values = updates.floats(block)
                if block.parameter:
                    start = old.floats(block)[0]
                    new = step.model(start, values - start)
                else:
                    new = weighted_sum(by_samples, values)
                writer.write(block.name, narrow(block.name, new, block.dtype))
        _write_control(step, updates, base, infos, control, control_output)
    return [source.name for source in given]


def _write_control(
    step: ServerStep, updates: Readers, base: Header, infos: _Infos, control: Path | None, output: Path
) -> None:
    files = [] if control is None else [("the server's control variate", control)]
    with Readers(files, _header(infos)) as old, TensorWriter(output, infos) as writer:
        for block in blocks(base, len(updates) + 2, frozenset(parameters(base)).__contains__):
            start = old.floats(block, CONTROL)[0] if len(old) else np.zeros(block.count)
            new = step.control(start, updates.floats(block, CONTROL))
            writer.write(CONTROL + block.name, narrow(CONTROL + block.name, new, "F32"))


def _header(infos: _Infos) -> Header:
    return Header({name: TensorInfo(dtype, shape, 0, 0) for name, (dtype, shape) in infos.items()})


def _with_controls(base: Header, infos: _Infos) -> Header:
    return Header(base.tensors | _header(infos).tensors, base.metadata)
