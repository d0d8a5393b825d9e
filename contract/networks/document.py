"""The document of a network: its tensors, and the graph of its forward pass in training and in evaluation.

An argument of a node is a number, a truth value, a word, null, a list of these, or an object with one key: ``node``
(what an earlier node gives; `INPUT` is what the network reads), ``tensor`` (one of the network's own), ``dtype``, or
``float`` (``inf`` and ``-inf``, which JSON has no numbers for).
"""

import hashlib
import json
import math
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from contract.bodies import Part
from contract.bounds import MOST_VALUES
from contract.faults import faults_of
from contract.json_text import read_json
from contract.networks.errors import NetworkError

INPUT = "input"
"""What a graph reads, among the names of nodes."""
PREFIX = "net:"
"""Begins the name of an architecture that is such a document; its digest follows, or the name it is registered by."""

MAX_BYTES = 1024 * 1024
MAX_NODES, MAX_TENSORS, MAX_CONSTANTS = 20_000, 10_000, 256
MAX_ELEMENTS, MAX_VALUES = 2_000_000_000, 65_536
"""Of all tensors together; of all constants together, whose values stand in the document."""
MAX_RANK, MAX_EDGE = 8, 2**40

NodeName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128, examples=["conv2d"])]
TensorName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*$", max_length=256, examples=["fc.weight"])]
Shape = Annotated[list[Annotated[int, Field(ge=0, le=MAX_EDGE)]], Field(max_length=MAX_RANK)]
Dtype = Literal["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
Role = Literal["classifier", "discriminator", "generator"]
Mode = Literal["train", "eval"]

STORED_AS: dict[str, str] = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
}
"""A dtype's name in a file of weights."""


class Stored(Part):
    """What the network's tensors and constants have in common."""

    name: TensorName
    dtype: Dtype
    shape: Shape


class Tensor(Stored):
    """One tensor of the network's state; they are listed in the order of its state dict."""

    kind: Literal["parameter", "frozen", "buffer"] = Field(description="frozen: a parameter without a gradient")
    same_as: TensorName | None = Field(None, description="an earlier tensor that this one is, such as a tied weight")


class Constant(Stored):
    """Values that are no state: they never change and do not travel with the weights."""

    values: Annotated[list[bool | int | float], Field(max_length=MAX_VALUES)] = Field(description="in C order")

    @model_validator(mode="after")
    def _whole(self) -> "Constant":
        if len(self.values) != math.prod(self.shape):
            raise ValueError(f"values: {len(self.values)} values for the shape {self.shape}")
        return self


class Node(Part):
    """One call of an operator of the list (`contract.networks.operators`)."""

    name: NodeName
    op: Annotated[str, Field(max_length=100, examples=["aten.conv2d.default"])]
    args: Annotated[list[Any], Field(max_length=64)] = []
    kwargs: Annotated[dict[str, Any], Field(max_length=32)] = {}


class Graph(Part):
    """Nodes in the order in which they run; each reads what earlier ones gave."""

    nodes: Annotated[list[Node], Field(min_length=1, max_length=MAX_NODES)]
    output: NodeName
    features: NodeName | None = Field(None, description="what the head reads; null where none is named")


class Input(Part):
    """What the network reads, without the batch: samples, or a generator's noise."""

    shape: Annotated[list[Annotated[int, Field(ge=1, le=MOST_VALUES)]], Field(min_length=1, max_length=5)]
    dtype: Literal["float32", "int64"] = "float32"


class Document(Part):
    """A network."""

    version: Literal[1] = 1
    role: Role = "classifier"
    input: Input
    output: Shape = Field(description="what it gives, without the batch: [C] for logits, [] for a score")
    gives: Literal["score", "probability"] = Field("score", description="what a discriminator ends in")
    tensors: Annotated[list[Tensor], Field(max_length=MAX_TENSORS)]
    constants: Annotated[list[Constant], Field(max_length=MAX_CONSTANTS)] = []
    train: Graph
    eval: Graph

    @property
    def stored(self) -> list[Stored]:
        """The tensors and the constants."""
        return [*self.tensors, *self.constants]

    def graph(self, mode: Mode) -> Graph:
        """Return the graph of a mode."""
        return self.train if mode == "train" else self.eval


def canonical(document: Document) -> bytes:
    """Return a document's one form: keys sorted, no blanks, UTF-8."""
    tree = document.model_dump(mode="json")
    return json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest_of(text: bytes) -> str:
    """Return the digest of a document's canonical form."""
    return f"sha256-{hashlib.sha256(text).hexdigest()}"


def name_of(digest: str) -> str:
    """Return the architecture that a document is."""
    return f"{PREFIX}{digest}"


def parse(text: bytes) -> Document:
    """Return what JSON text says, in form alone: see `contract.networks.checks.read`.

    Raises:
        NetworkError: it is too long, no JSON, or has other fields, types or bounds.
    """
    if len(text) > MAX_BYTES:
        raise NetworkError("", f"the document has {len(text)} bytes, and may have {MAX_BYTES}; take a smaller network")
    try:
        tree = read_json(text, constant=_no_number)
    except (ValueError, UnicodeDecodeError) as error:
        raise NetworkError("", f"no JSON: {str(error)[:200]}; make the document with potstill network export") from None
    try:
        return Document.model_validate(tree)
    except ValidationError as error:
        field, message = faults_of(error, tree)[0]
        raise NetworkError(field, message) from None


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no JSON")
