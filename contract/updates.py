"""Names on the wire: what an update's file holds beside a model's own tensors, and what devices are sent beside it.

Each name stands here once. What an update must hold follows from the local plan: `contract.layout`.
"""

from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from contract.tensors import BUFFERS_KEY, FLOATS, Header, TensorError, TensorFile

FEATURES_KEY = "potstill.features"
"""Metadata of a first model: the size d of its features, where the network has them."""

BASE_KEY = "potstill.base"
"""Metadata of a model that is a part of a network: the digest of the file that holds the others (`contract.whole`)."""

MODEL_KEYS = (BUFFERS_KEY, FEATURES_KEY, BASE_KEY)
"""Metadata that belongs to a model and not to who made it: averages and students keep it."""

# ------------------------------------------------------------------------------------------------- tensors of an update
CONTROL = "control."
"""Prefix of a control variate's tensors, F32, one for each parameter (SCAFFOLD): the change dc_i in an update."""

KEPT = "kept."
"""Prefix of the tensors that a device keeps to itself, in what it remembers between rounds; they are in no update."""

CLASS_MEANS, CLASS_COUNTS = "class_means", "class_counts"
"""Mean features of each class F32 [C, d], and how many samples they are of, I64 [C] (FedTGP)."""

GENERATOR, DISCRIMINATOR = "generator.", "discriminator."
"""Prefixes of a generator's tensors, and of a discriminator's head on the model's features: ``weight`` F32 [1, d],
``bias`` F32 [1] (DaFKD).
"""

BITS, SCALE = "bits.", "scale."
"""Prefixes of what stands for a binarised weight: its signs U8 [(numel + 7) // 8], its channels' scales F32 [out]."""

PREDICTIONS = "predictions"
"""The one tensor of an update that is no weights, F32 [P, C] (DS-FL)."""

# ------------------------------------------------------------------------------------ what goes out beside the model
SEND = "send."
"""Prefix of what devices are sent, among what a federation keeps."""

CONTROL_EXTRA, TEACHER, PROTOTYPES = "control", "teacher", "prototypes"
"""The server's control variate by parameter (SCAFFOLD); the mean of the last global models (FedGKD); the classes'
prototypes, tensor ``prototypes`` F32 [C, d] (FedTGP)."""

BASE = "base"
"""The tensors of a network that rounds do not move, with the first values of those that devices keep to themselves."""

SENT_GENERATOR = "generator"
"""DaFKD's: the mean of the devices' generators, as it was made in the round before."""

PUBLIC, TARGETS = "public", "targets"
"""DS-FL's: the public set (tensor ``inputs`` [P, ...]), the server's targets on it (``targets`` F32 [P, C])."""

SENT_WORDS = {
    BASE: "the tensors that nobody trains, and first values of those that devices keep",
    CONTROL_EXTRA: "the mean of all devices' control variates",
    TEACHER: "the mean of the last global models",
    PROTOTYPES: "prototypes of the classes, made from all devices' class means",
    SENT_GENERATOR: "the mean of all devices' generators",
    PUBLIC: "the inputs of the public set themselves",
    TARGETS: "labels of the public set, made from all devices' predictions",
}
"""What each of these tells a device."""

_LAST_LAYER = ("head.", "adapter.")
"""How `contract.nn.classifier.Classifier` names its last layer; in other networks it is the last weight."""

_SUM_TOLERANCE = 1e-3
_ROWS = 65_536

Kept = TypeVar("Kept")
Layout = dict[str, tuple[str, tuple[int, ...]]]


def parameters(base: Header) -> list[str]:
    """Return the names of a model's float tensors that are no buffers."""
    return [name for name, info in base.tensors.items() if info.dtype in FLOATS and name not in base.buffers]


def binary_weights(base: Header) -> list[str]:
    """Return the weights that binary precision sends as bits (FedDF 4.3).

    They are the parameters with two axes or more, but for the first and the last layer. The last one is the head, all
    of its layers where it has several; the adapter in front of a head that all architectures share goes with it: such a
    head is averaged with those of other networks, which may be full precision (Fed-ET).
    """
    weights = [name for name in parameters(base) if len(base.tensors[name].shape) >= 2]
    return [name for name in weights[1:-1] if not name.startswith(_LAST_LAYER)]


def features_of(base: Header) -> int:
    """Return the size of a model's features.

    Raises:
        TensorError: the model does not say.
    """
    text = base.metadata.get(FEATURES_KEY, "")
    if not text.isdecimal():
        raise TensorError("tensors", "this objective sends features; take an architecture that has named features")
    return int(text)


def public_samples(public: Header | None) -> int:
    """Return P, the number of samples of a public set.

    Raises:
        TensorError: there is no such set, or it has no tensor 'inputs' [P, ...], P > 0.
    """
    info = public.tensors.get("inputs") if public is not None else None
    if info is None or not info.shape or not info.shape[0]:
        raise TensorError(
            "tensors", "DS-FL predicts on a public set, which did not come: a file with 'inputs' [P, ...]"
        )
    return info.shape[0]


def check_predictions(file: TensorFile) -> None:
    """Refuse predictions [P, C] that are no probabilities: each in [0, 1], each row with the sum 1.

    Raises:
        TensorError: code 'values', naming the first such row.
    """
    rows, classes = file.info(PREDICTIONS).shape
    for start in range(0, rows, _ROWS):
        count = min(_ROWS, rows - start)
        block = file.read_block(PREDICTIONS, start * classes, count * classes).reshape(count, classes)
        sums = block.sum(axis=1, dtype=np.float64)
        wrong = ~((np.abs(sums - 1) <= _SUM_TOLERANCE) & (block >= 0).all(axis=1))  # also NaN
        if wrong.any():
            row = int(np.argmax(wrong))
            raise TensorError(
                "values",
                f"predictions: row {start + row} is no probabilities (least {block[row].min()}, sum {sums[row]}); send "
                "the softmax of the logits",
                tensor=PREDICTIONS,
            )


def extras(kept: Mapping[str, Kept], model: str) -> dict[str, Kept]:
    """Return what goes out beside a model, by its name there: `SEND` + name to all, `SEND` + name.model to its clients.

    Args:
        kept: all that a federation keeps.
        model: a prototype's name, or a group's copy of it.
    """
    found = {}
    for name, value in kept.items():
        what, _, owner = name.removeprefix(SEND).partition(".")
        if name.startswith(SEND) and owner in ("", model):
            found[what] = value
    return found
