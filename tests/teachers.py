"""Teachers that come one after another, as in a round, from arrays: for tests of weightings and combiners."""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from contract.measures import softmax
from worker.parts.combine import Combiner, Form, Labels
from worker.parts.weigh import log_weights, normalise
from worker.registry import implements


def weights(choice: Any, num_samples: Any, logits: Any = None, scores: Any = None) -> Any:
    """Return weights [m, B] from n_k [m] and logits [m, B, C], scores [m, B] or both."""
    outputs = np.zeros((*np.shape(scores), 2)) if logits is None else np.asarray(logits, np.float64)
    rows = [None] * len(outputs) if scores is None else np.asarray(scores)
    return normalise(
        [log_weights(choice, n, each, row) for n, each, row in zip(num_samples, outputs, rows, strict=True)]
    )


def combined(choice: Any, logits: Any, shares: Any = None, batch: int | None = None) -> Labels:
    """Return the labels that a combiner makes of logits [m, S, C] and weights [m, S], `batch` samples at a time."""
    outputs = np.asarray(logits, np.float64)
    with np.errstate(divide="ignore"):
        logs = np.zeros(outputs.shape[:2]) if shares is None else np.log(np.asarray(shares, np.float64))
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "outputs"
        combiner: Combiner = implements.of(choice)(choice, Form(outputs.shape[1], outputs.shape[2:]), scratch, stack)
        size = batch or outputs.shape[1]
        for each, row in zip(outputs, logs, strict=True):
            for start in range(0, len(row), size):
                combiner.add(start, each[start : start + size], row[start : start + size])
        return combiner.result(normalise(list(logs)))


def target(choice: Any, logits: Any, shares: Any = None, batch: int | None = None) -> Any:
    """Return the pseudo-labels [S, C]."""
    return softmax(combined(choice, logits, shares, batch).logits)
