"""Data sets for simulations: scikit-learn's digits, files of one's own, and packed sets in a folder of one's own.

The folder is named by --data-dir or POTSTILL_DATA_DIR. Image files are safetensors: `labels` [N] beside `images` uint8
[N, C, H, W], or beside lossless WebP sheets `sheet_0000`, …, each a grid of `cols` columns with `per_sheet` images
(metadata `format` = webp-sheets/1). Texts are gzipped JSON lines with `text` and `label`.
"""

import gzip
import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contract.installation import install
from contract.json_text import read_json
from contract.seeds import derive_seed
from contract.tasks import TaskKind
from contract.tokenizer import HashingTokenizer
from potstill.samples import Inputs, Samples
from potstill.simulate import made, own_files
from potstill.simulate.config import SimulationError
from potstill.simulate.loaded import Loaded, with_strata

ENVIRONMENT = "POTSTILL_DATA_DIR"
VOCABULARY = 8192  # the default of the text architectures
WORDS = 32
_NEXT_VOCABULARY = 256  # small, so that a network of a few minutes learns it
_SHAPES, _DOCUMENTS = 1000, 120
_SHEETS = "webp-sheets/1"


@dataclass(frozen=True)
class _Files:
    """Where a packed data set lies in the folder."""

    folder: str
    read: Callable[[Path], Samples]
    train: str
    test: str
    server: str | None = None


# ------------------------------------------------------------------------------------------------------------- reading
def digits() -> Loaded:
    """Return scikit-learn's 1,797 images of 8 x 8 pixels.

    Raises:
        SimulationError: scikit-learn is not installed.
    """
    from potstill.demo.data import load

    try:
        everything = load()
    except ModuleNotFoundError as error:
        raise SimulationError(f"{error.name} is not installed; {install('demo')}") from error
    return Loaded("digits", 10, everything, server_share=0.5)


def _digit_pairs() -> Loaded:
    try:
        pairs = made.digit_pairs(_seeded("digit-pairs"))
    except ModuleNotFoundError as error:
        raise SimulationError(f"{error.name} is not installed; {install('demo')}") from error
    return Loaded("digit-pairs", 10, pairs, kind="multilabel", dealt_by="digit on the left", server_share=0.5)


def _diabetes() -> Loaded:
    try:
        found = made.diabetes()
    except ModuleNotFoundError as error:
        raise SimulationError(f"{error.name} is not installed; {install('demo')}") from error
    return with_strata(Loaded("diabetes", 1, found, kind="regression", server_share=0.3))


def _shapes() -> Loaded:
    found = made.shapes(_seeded("shapes"), _SHAPES)
    classes = 1 + len(made.FIGURES)
    return Loaded("shapes", classes, found, kind="dense", dealt_by="figure", server_share=0.3)


def _sentences() -> Loaded:
    found = made.sentences(_seeded("sentences"), _DOCUMENTS)
    return Loaded("sentences", 1 + made.WORDS, found, kind="tokens", dealt_by="topic", server_share=0.3)


def _seeded(name: str) -> np.random.Generator:
    """Return what a set is made by: the same set for all seeds of an experiment, which split it."""
    return np.random.default_rng(derive_seed(0, "simulate", "made", name))


def read_images(path: Path) -> Samples:
    """Return the images of a packed file, float32 [N, C, H, W] in [0, 1].

    Raises:
        SimulationError: Pillow is missing, or the file is not of this form.
    """
    from safetensors import SafetensorError, safe_open  # columns may be uint16, which models never are

    try:
        with safe_open(path, "np") as file:
            labels = file.get_tensor("labels").astype(np.int64)
            meta = file.metadata() or {}
            pixels = _sheets(file, meta, path) if meta.get("format") == _SHEETS else file.get_tensor("images")
    except (SafetensorError, KeyError, ValueError) as error:
        raise SimulationError(f"{path}: is no file of packed images: {error}") from error
    if pixels.ndim != 4 or len(pixels) != len(labels):
        raise SimulationError(f"{path}: images have shape {list(pixels.shape)} for {len(labels)} labels")
    return Samples(pixels.astype(np.float32) / np.float32(255), labels)


def _sheets(file: Any, meta: dict[str, str], path: Path) -> NDArray[np.uint8]:
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise SimulationError(f"{path}: needs Pillow to be read; pip install pillow") from error
    total, channels, height, width, columns, each = (
        int(meta[key]) for key in ("n", "channels", "height", "width", "cols", "per_sheet")
    )
    pixels = np.empty((total, channels, height, width), np.uint8)
    for number, start in enumerate(range(0, total, each)):
        packed = file.get_tensor(f"sheet_{number:04}").tobytes()
        sheet = np.asarray(Image.open(io.BytesIO(packed)).convert("RGB"))
        grid = sheet.reshape(sheet.shape[0] // height, height, columns, width, 3).transpose(0, 2, 4, 1, 3)
        count = min(each, total - start)
        pixels[start : start + count] = grid.reshape(-1, 3, height, width)[:count, :channels]
    return pixels


def read_texts(path: Path, vocabulary: int = VOCABULARY, words: int = WORDS) -> Samples:
    """Return the token ids of a file of texts, int64 [N, words] (`contract.tokenizer`).

    Raises:
        SimulationError: a line is not of this form.
    """
    texts, labels = [], []
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                row = read_json(line)
                texts.append(str(row["text"]))
                labels.append(int(row["label"]))
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise SimulationError(f"{path}: line {len(labels) + 1}: {type(error).__name__}: {error}") from error
    return Samples(HashingTokenizer(vocabulary, words).encode_all(texts), np.array(labels, np.int64))


def _agnews_next(folder: Path | None) -> Loaded:
    """Return the next tokens of AG News, dealt by its topics."""
    parts = []
    for path in files("agnews", folder):
        texts = read_texts(path, _NEXT_VOCABULARY, made.LENGTH)
        parts.append(Samples(texts.inputs, made.next_tokens(texts.inputs), strata=texts.labels))
    train, test = parts
    return Loaded("agnews-next", _NEXT_VOCABULARY, train, test, kind="tokens", dealt_by="topic")


_PACKED = {
    "mnist": _Files("mnist", read_images, "train-60k.safetensors", "test-10k.safetensors"),
    "fashion-mnist": _Files("fashion-mnist-lite", read_images, "train-20k.safetensors", "test-5k.safetensors"),
    "cifar10": _Files(
        "cifar10",
        read_images,
        "train-clients-24k.safetensors",
        "test-a-5k.safetensors",
        "train-server-7k.safetensors",
    ),
    "sst2": _Files("sst2", read_texts, "train.jsonl.gz", "validation.jsonl.gz"),
    "agnews": _Files("agnews", read_texts, "train-10k.jsonl.gz", "test.jsonl.gz"),
}
_UNLABELED = {"cifar100": Path("cifar100-lite", "unlabeled-10k.safetensors")}
_MADE: dict[str, Callable[[], Loaded]] = {
    "digits": digits,
    "digit-pairs": _digit_pairs,
    "diabetes": _diabetes,
    "shapes": _shapes,
    "sentences": _sentences,
}
NAMES = (*_MADE, *_PACKED, "agnews-next")
SERVER_NAMES = (*NAMES, *_UNLABELED)


def load(name: str, folder: Path | None = None, kind: TaskKind | None = None) -> Loaded:
    """Return a data set by name, or from the path of a file.

    Args:
        name: one of `NAMES`, or a path that ends in .npz or .safetensors.
        folder: where packed sets are; by default the environment's POTSTILL_DATA_DIR.
        kind: of the task; a file's can be seen from most labels.

    Raises:
        SimulationError: there is no such data set, or it is not there; the message says where it was looked for. Or its
            labels are of another kind.
    """
    if name not in NAMES:
        return own_files.read(_own(name, "data", NAMES), kind)
    if name in _MADE:
        found = _MADE[name]()
    else:
        found = _packed(name, folder) if name in _PACKED else _agnews_next(folder)
    if kind not in (None, found.kind):
        raise SimulationError(f"task: {name} has labels of {found.kind}, none of {kind}; leave --task out")
    return found


def _own(name: str, field: str, known: Sequence[str]) -> Path:
    """Return the path of somebody's own file."""
    path = Path(name)
    if path.suffix.lower() not in (".npz", ".safetensors"):
        raise SimulationError(f"{field}: {name!r} is neither one of {', '.join(known)} nor a .npz or .safetensors file")
    if not path.is_file():
        raise SimulationError(f"{field}: there is no file {path}")
    return path


def files(name: str, folder: Path | None = None) -> list[Path]:
    """Return the files of a packed data set.

    Raises:
        SimulationError: no folder is known, or one of them is not there.
    """
    packed = _PACKED[name]
    return _found(
        name, [Path(packed.folder, file) for file in (packed.train, packed.test, packed.server) if file], folder
    )


def _found(name: str, wanted: list[Path], folder: Path | None, field: str = "data") -> list[Path]:
    """Return where the files of a set are, which are named relative to the folder of sets."""
    given = folder or (Path(os.environ[ENVIRONMENT]) if os.environ.get(ENVIRONMENT) else None)
    if given is None:
        raise SimulationError(
            f"{field}: {name} is not part of potstill; name the folder that has it with --data-dir or {ENVIRONMENT}"
        )
    missing = next((given / path for path in wanted if not (given / path).is_file()), None)
    if missing is not None:
        raise SimulationError(
            f"{field}: {name} needs {missing}, which is not there; name another folder with --data-dir"
        )
    return [given / path for path in wanted]


def _packed(name: str, folder: Path | None) -> Loaded:
    train, test, *server = [_PACKED[name].read(path) for path in files(name, folder)]
    classes = 1 + max(int(each.labels.max()) for each in (train, test, *server))
    return Loaded(name, classes, train, test, next(iter(server), None))


# ------------------------------------------------------------------------------------- what only the server may have
def server_inputs(name: str, folder: Path | None = None) -> Inputs:
    """Return the inputs [M, *shape] of a set that the server has, whatever the clients' is.

    Args:
        name: one of `SERVER_NAMES`, or a path that ends in .npz or .safetensors; such a file needs no labels.
        folder: where packed sets are; by default the environment's POTSTILL_DATA_DIR.

    Raises:
        SimulationError: there is no such set, it is not there, or its file has another form.
    """
    if name in _UNLABELED:
        return read_images(_found(name, [_UNLABELED[name]], folder, "server_data")[0]).inputs
    if name in NAMES:
        found = load(name, folder)
        return (found.server or found.train).inputs
    return own_files.inputs_of(_own(name, "server_data", SERVER_NAMES))
