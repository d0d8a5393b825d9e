"""Combine: teachers' outputs and their weights -> one soft pseudo-label per sample, or per position. float64.

Shapes: m teachers, B samples of a batch, S of the whole set, C classes. Where samples are labelled at P positions,
[., C] stands for [., P..., C] (`contract.nn.losses.class_rows`); of a regression C are its columns. Teachers come one
after another; each combiner is made from its options, and gives logits [S, C] whose softmax is the pseudo-label.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from contract.measures import softmax
from contract.recipes import parts
from contract.tasks import OF_CLASSES, TaskKind
from contract.tensors import Array
from worker.parts import fedet
from worker.parts.arrays import Float, probabilities
from worker.parts.errors import PartError
from worker.parts.space import is_held, space
from worker.registry import implements

_BLOCK = 16
"""Samples of a large set that are finished at once."""
_ROWS = 256
"""Samples of which all teachers' outputs are in memory at once."""


@dataclass(frozen=True)
class Form:
    """What teachers say of one data set.

    Attributes:
        samples: S.
        shape: of one sample: (C,), or (P..., C).
        kind: of the task.
    """

    samples: int
    shape: tuple[int, ...]
    kind: TaskKind = "classification"

    @property
    def whole(self) -> tuple[int, ...]:
        """[S, C]."""
        return (self.samples, *self.shape)


@dataclass(frozen=True)
class Labels:
    """What the teachers say together.

    Attributes:
        logits: [S, C]; their softmax is the pseudo-label. Of a set that is not held in memory float32, in a file.
        labels: the consensus's hard label, int64 [S] (Fed-ET).
        diversity: what those say who disagree [S, C] (Fed-ET).
    """

    logits: Float
    labels: NDArray[np.int64] | None = None
    diversity: Float | None = None


class Combiner(Protocol):
    """Takes teachers' outputs one after another."""

    def add(self, start: int, logits: Float, log_weight: Float) -> None:
        """Take a teacher's logits [B, C] and log weights [B] for the samples from `start` on."""

    def result(self, weights: Float) -> Labels:
        """Return the labels, given all teachers' weights [m, S]."""

    def state(self) -> dict[str, Array]:
        """Return what was taken so far."""

    def restore(self, state: Mapping[str, Array]) -> None:
        """Go on from what `state` gave."""


MakeCombiner = Callable[[Any, Form, Path, ExitStack], Combiner]
"""(choice, the set's form, file for what does not fit into memory, what ends with the combiner) -> the combiner."""


def centred(logits: Float) -> Float:
    """Return logits [..., C] less their own maximum: their softmax is the same, and +-1e4 stay precise in a sum."""
    return np.asarray(logits - logits.max(axis=-1, keepdims=True))


def log_probabilities(probs: Float) -> Float:
    """Return logits whose softmax is probabilities of any shape; those of 0 become the least that float32 has.

    Raises:
        PartError: non_finite, out_of_range (outside [0, 1], by more than rounding above 1).
    """
    checked = probabilities("probability", probs, slack=1e-3)
    return np.asarray(np.log(np.maximum(checked, np.finfo(np.float32).tiny)))


class Mean:
    """The weighted mean of something of the teachers' logits, one teacher in memory at a time.

    Log weights may depend on the teacher's own outputs (variance, entropy), so the normaliser is known only after the
    last teacher. A running maximum per sample keeps every exponential at most 1. Memory: [S, C] and two [S]; the former
    lies in a file where it is large.

    Args:
        form: of the set.
        scratch: for that file.
        of: logits [B, C] -> what is averaged [B, C].
    """

    def __init__(self, form: Form, scratch: Path, of: Callable[[Float], Float]):
        self._of, self._scratch = of, scratch
        self._sum = space(form.whole, np.float64, scratch)
        self._weight = np.zeros(form.samples)
        self._peak = np.full(form.samples, -np.inf)

    def add(self, start: int, logits: Float, log_weight: Float) -> None:
        """Take one teacher's logits [B, C] for the samples from `start` on, with its log weights [B] (-inf: weight 0).

        A teacher of weight 0 is skipped, not multiplied, where its logits are NaN or infinity.

        Raises:
            PartError: schema_mismatch, non_finite.
        """
        rows = slice(start, start + len(logits))
        if logits.shape != self._sum[rows].shape or log_weight.shape != logits.shape[:1]:
            raise PartError("schema_mismatch", f"logits {logits.shape} do not go with weights {log_weight.shape}")
        inner = tuple(range(1, logits.ndim))
        sound = np.asarray(np.isfinite(logits).all(axis=inner))
        if np.isnan(log_weight).any() or np.isposinf(log_weight).any() or np.isfinite(log_weight[~sound]).any():
            raise PartError("non_finite", "logits or weights have NaN or infinity")
        values = self._of(logits if sound.all() else np.where(np.expand_dims(sound, inner), logits, 0.0))
        peak = np.maximum(self._peak[rows], log_weight)
        nobody = np.isneginf(peak)  # so far every weight is 0: count all alike, until one is positive
        with np.errstate(invalid="ignore"):  # -inf - -inf, replaced by what stands before it
            keep = np.where(nobody, 1.0, np.exp(self._peak[rows] - peak))
            share = np.where(nobody, sound, np.exp(log_weight - peak))
        self._sum[rows] = self._sum[rows] * np.expand_dims(keep, inner) + values * np.expand_dims(share, inner)
        self._weight[rows] = self._weight[rows] * keep + share
        self._peak[rows] = peak

    def state(self) -> dict[str, Float]:
        """Return the sums so far, float64: what `restore` needs to go on with the next teacher."""
        return {"sum": self._sum, "weight": self._weight, "peak": self._peak}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Go on from sums that `state` gave."""
        for name, held in self.state().items():
            held[...] = state[name]

    def mean(self, rows: slice = slice(None)) -> Float:
        """Return [S, C], or some rows of it.

        Raises:
            PartError: no_participants when no teacher was added for some sample.
        """
        if (self._weight[rows] <= 0).any():
            raise PartError("no_participants", "a sample was seen by no teacher")
        inner = tuple(range(1, self._sum.ndim))
        return np.asarray(self._sum[rows] / np.expand_dims(self._weight[rows], inner))

    def finish(self, mean: Float) -> Float:
        """Return the logits of a mean [B, C]; what subclasses change."""
        return mean

    def result(self, weights: Float) -> Labels:
        """Return `finish` of the mean, block by block where it is not held in memory."""
        if is_held(self._sum.shape, np.float64):
            return Labels(self.finish(self.mean()))
        made = space(self._sum.shape, np.float32, self._scratch)
        for start in range(0, len(made), _BLOCK):
            rows = slice(start, start + _BLOCK)
            made[rows] = self.finish(self.mean(rows))
        return Labels(made)


# ------------------------------------------------------------------------------------------------------- the combiners
@implements(parts.CombineLogits)
class Logits(Mean):
    """Softmax of the weighted mean of logits, sum_k w_k f_k (FedDF AVGLOGITS; FedGO Alg. 1 line 10), up to a constant.

    Of a regression it is the weighted mean of the values themselves.
    """

    def __init__(self, choice: parts.CombineLogits, form: Form, scratch: Path, stack: ExitStack):
        super().__init__(form, scratch, centred if form.kind in OF_CLASSES else np.asarray)


@implements(parts.CombineProbs)
class Probs(Mean):
    """Weighted mean of probabilities p, sharpened by p^s / sum p^s (FedBE eq. 4, section 5.1)."""

    def __init__(self, choice: parts.CombineProbs, form: Form, scratch: Path, stack: ExitStack):
        super().__init__(form, scratch, softmax)
        self._power = 1.0 if choice.sharpen is None else choice.sharpen

    def finish(self, mean: Float) -> Float:
        """Return s times the logarithm of the mean."""
        return self._power * log_probabilities(mean)


@implements(parts.CombineEra)
class Era(Mean):
    """Softmax of mean probabilities at a low temperature, softmax(p / T) (DS-FL: Itahara et al. 2021, eq. 5 and 12)."""

    def __init__(self, choice: parts.CombineEra, form: Form, scratch: Path, stack: ExitStack):
        super().__init__(form, scratch, softmax)
        self._temperature = choice.temperature

    def finish(self, mean: Float) -> Float:
        """Return the mean over T."""
        return np.asarray(mean / self._temperature)


@implements(parts.CombineConsensus)
class Consensus:
    """Fed-ET's hard label and diversity target.

    Who disagrees is known only after the last teacher, so all outputs wait in a file: on disk [m, S, C] float32, in
    memory a block of samples at a time.
    """

    def __init__(self, choice: parts.CombineConsensus, form: Form, scratch: Path, stack: ExitStack):
        self._samples, (self._classes,) = form.samples, form.shape
        stack.callback(scratch.unlink, missing_ok=True)
        self._file: BinaryIO = stack.enter_context(scratch.open("w+b"))

    def add(self, start: int, logits: Float, log_weight: Float) -> None:
        """Append the outputs; they come teacher by teacher, sample by sample, and were float32 in the network."""
        self._file.write(logits.astype(np.float32).tobytes())

    def result(self, weights: Float) -> Labels:
        """Return the logarithm of the consensus, its hard label and the diversity target."""
        means, labels, diverse = [], [], []
        for start in range(0, self._samples, _ROWS):
            found = fedet.targets(self._block(len(weights), start), weights[:, start : start + _ROWS])
            means.append(log_probabilities(found.consensus))
            labels.append(found.label)
            diverse.append(found.div_target)
        return Labels(np.concatenate(means), np.concatenate(labels), np.concatenate(diverse))

    def state(self) -> dict[str, Array]:
        """Return all outputs so far, [values] float32."""
        self._file.seek(0)
        return {"outputs": np.frombuffer(self._file.read(), np.float32)}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Put them back into the file."""
        self._file.write(state["outputs"].tobytes())

    def _block(self, teachers: int, start: int) -> Float:
        count = min(_ROWS, self._samples - start) * self._classes
        block = np.empty((teachers, count))
        for index in range(teachers):
            self._file.seek(4 * self._classes * (index * self._samples + start))
            block[index] = np.frombuffer(self._file.read(4 * count), np.float32)
        return block.reshape(teachers, -1, self._classes)


def effective_teachers(weights: Float) -> Float:
    """Return 1 / sum_k w_k^2 [S] for weights [m, S] that sum to 1: m when all count alike, 1 when one rules."""
    return np.asarray(1.0 / (weights**2).sum(axis=0))
