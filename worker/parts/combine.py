"""Combine: teachers' outputs and their weights -> one soft pseudo-label per sample. float64.

Shapes: m teachers, B samples of a batch, S of the whole set, C classes. Teachers come one after another; each combiner
is made from its options, and gives logits [S, C] whose softmax is the pseudo-label.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from contract.recipes import parts
from contract.tensors import Array
from worker.parts import fedet
from worker.parts.arrays import Float, probabilities
from worker.parts.errors import PartError
from worker.parts.weigh import softmax
from worker.registry import implements

_ROWS = 256
"""Samples of which all teachers' outputs are in memory at once."""


@dataclass(frozen=True)
class Labels:
    """What the teachers say together.

    Attributes:
        logits: [S, C]; their softmax is the pseudo-label.
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


MakeCombiner = Callable[[Any, int, int, Path, ExitStack], Combiner]
"""(choice, S, C, file for what does not fit into memory, what ends with the combiner) -> the combiner."""


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
    last teacher. A running maximum per sample keeps every exponential at most 1. Memory: [S, C] and two [S].

    Args:
        samples: S.
        classes: C.
        of: logits [B, C] -> what is averaged [B, C].
    """

    def __init__(self, samples: int, classes: int, of: Callable[[Float], Float]):
        self._of = of
        self._sum = np.zeros((samples, classes))
        self._weight = np.zeros(samples)
        self._peak = np.full(samples, -np.inf)

    def add(self, start: int, logits: Float, log_weight: Float) -> None:
        """Take one teacher's logits [B, C] for the samples from `start` on, with its log weights [B] (-inf: weight 0).

        A teacher of weight 0 is skipped, not multiplied, where its logits are NaN or infinity.

        Raises:
            PartError: schema_mismatch, non_finite.
        """
        rows = slice(start, start + len(logits))
        if logits.shape != self._sum[rows].shape or log_weight.shape != logits.shape[:1]:
            raise PartError("schema_mismatch", f"logits {logits.shape} do not go with weights {log_weight.shape}")
        sound = np.asarray(np.isfinite(logits).all(axis=1))
        if np.isnan(log_weight).any() or np.isposinf(log_weight).any() or np.isfinite(log_weight[~sound]).any():
            raise PartError("non_finite", "logits or weights have NaN or infinity")
        values = self._of(logits if sound.all() else np.where(sound[:, None], logits, 0.0))
        peak = np.maximum(self._peak[rows], log_weight)
        nobody = np.isneginf(peak)  # so far every weight is 0: count all alike, until one is positive
        with np.errstate(invalid="ignore"):  # -inf - -inf, replaced by what stands before it
            keep = np.where(nobody, 1.0, np.exp(self._peak[rows] - peak))
            share = np.where(nobody, sound, np.exp(log_weight - peak))
        self._sum[rows] = self._sum[rows] * keep[:, None] + values * share[:, None]
        self._weight[rows] = self._weight[rows] * keep + share
        self._peak[rows] = peak

    def state(self) -> dict[str, Float]:
        """Return the sums so far, float64: what `restore` needs to go on with the next teacher."""
        return {"sum": self._sum, "weight": self._weight, "peak": self._peak}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Go on from sums that `state` gave."""
        for name, held in self.state().items():
            held[...] = state[name]

    def mean(self) -> Float:
        """Return [S, C].

        Raises:
            PartError: no_participants when no teacher was added for some sample.
        """
        if (self._weight <= 0).any():
            raise PartError("no_participants", "a sample was seen by no teacher")
        return np.asarray(self._sum / self._weight[:, None])


# ------------------------------------------------------------------------------------------------------- the combiners
@implements(parts.CombineLogits)
class Logits(Mean):
    """Softmax of the weighted mean of logits, sum_k w_k f_k (FedDF AVGLOGITS; FedGO Alg. 1 line 10)."""

    def __init__(self, choice: parts.CombineLogits, samples: int, classes: int, scratch: Path, stack: ExitStack):
        super().__init__(samples, classes, centred)

    def result(self, weights: Float) -> Labels:
        """Return the mean logits, up to a constant per sample."""
        return Labels(self.mean())


@implements(parts.CombineProbs)
class Probs(Mean):
    """Weighted mean of probabilities p, sharpened by p^s / sum p^s (FedBE eq. 4, section 5.1)."""

    def __init__(self, choice: parts.CombineProbs, samples: int, classes: int, scratch: Path, stack: ExitStack):
        super().__init__(samples, classes, softmax)
        self._power = 1.0 if choice.sharpen is None else choice.sharpen

    def result(self, weights: Float) -> Labels:
        """Return s times the logarithm of the mean."""
        return Labels(self._power * log_probabilities(self.mean()))


@implements(parts.CombineEra)
class Era(Mean):
    """Softmax of mean probabilities at a low temperature, softmax(p / T) (DS-FL: Itahara et al. 2021, eq. 5 and 12)."""

    def __init__(self, choice: parts.CombineEra, samples: int, classes: int, scratch: Path, stack: ExitStack):
        super().__init__(samples, classes, softmax)
        self._temperature = choice.temperature

    def result(self, weights: Float) -> Labels:
        """Return the mean over T."""
        return Labels(self.mean() / self._temperature)


@implements(parts.CombineConsensus)
class Consensus:
    """Fed-ET's hard label and diversity target.

    Who disagrees is known only after the last teacher, so all outputs wait in a file: on disk [m, S, C] float32, in
    memory a block of samples at a time.
    """

    def __init__(self, choice: parts.CombineConsensus, samples: int, classes: int, scratch: Path, stack: ExitStack):
        self._samples, self._classes = samples, classes
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
