"""Documents that come from outside: what is refused, and that the reason names place, operator and remedy."""

import subprocess
import sys
from typing import Any

import pytest

from contract.networks import checks, document
from contract.networks.errors import NetworkError
from contract.networks.schemas import read_schema
from tests.contract.networks.documents import GOOD, changed, text

RELU = {"name": "extra", "op": "aten.relu.default", "args": [{"node": "fc"}]}


def node(op: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    return changed("train.nodes.3", {"name": "extra", "op": op, "args": list(args), "kwargs": kwargs})


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "unknown operator": (changed("train.nodes.1.op", "aten.as_strided.default"), r"train.drop: .* not on the list"),
    "an operator that is code": (changed("train.nodes.1.op", "__import__"), "not on the list"),
    "other version": (changed("version", 2), "version"),
    "other field": (changed("code", "x"), "code: there is no such field"),
    "forward reference": (changed("train.nodes.1.args.0", {"node": "fc"}), r"drop: .*'fc' is no earlier node"),
    "itself": (changed("train.nodes.1.args.0", {"node": "drop"}), "no earlier node.*no cycles"),
    "node twice": (changed("train.nodes.2.name", "drop"), r"train.drop: .*of this name is there before"),
    "node called input": (changed("train.nodes.1.name", "input"), "there before"),
    "name of a node": (changed("train.nodes.1.name", "a b"), "train.nodes.1.name"),
    "longest name": (changed("train.nodes.1.name", "a" * 129), "128"),
    "tensor twice": (changed("tensors.2", GOOD["tensors"][1]), "'fc.bias' is there twice"),
    "tensor above another": (changed("tensors.2.name", "fc"), "'fc' is a tensor and has 'fc.weight' below it"),
    "tensor's name": (changed("tensors.2.name", "../x"), "tensors.2.name"),
    "unknown tensor": (changed("train.nodes.2.args.1", {"tensor": "fc.w"}), r"fc: .*'fc.w' is none of"),
    "whole parameter": (changed("tensors.1.dtype", "int64"), "'fc.bias' is int64, which no gradient changes"),
    "output before features": (changed("eval.output", "same", changed("eval.features", "fc")), "comes before 'fc'"),
    "idle parameter": (
        changed("tensors.2", GOOD["tensors"][2] | {"kind": "parameter", "dtype": "float32"}),
        "writes into 'seen'; only",
    ),
    "unused parameter": (
        changed("tensors.3", {"name": "w", "dtype": "float32", "shape": [1], "kind": "frozen"}),
        "parameter 'w': no node reads it",
    ),
    "written in evaluation": (
        changed("eval.nodes.0", {"name": "same", "op": "aten.add_.Tensor", "args": [{"tensor": "seen"}, 1]}),
        "eval.same: aten.add_.Tensor, self: writes into 'seen'",
    ),
    "tie to none": (changed("tensors.1.same_as", "x"), "'fc.bias' is to be 'x', which is none before it"),
    "tie of another form": (changed("tensors.1.same_as", "fc.weight"), "which has another form"),
    "no output": (changed("train.output", "last"), "train.output: 'last' is no node"),
    "features in one graph": (changed("train.features", None), "in one graph and not in the other"),
    "features that are not all": (changed("train.features", "count"), "the output reads more than 'count'"),
    "edge": (changed("tensors.0.shape", [2**41]), "tensors.0.shape.0"),
    "negative edge": (changed("tensors.0.shape", [-1]), "tensors.0.shape.0"),
    "rank": (changed("tensors.0.shape", [1] * 9), "tensors.0.shape"),
    "all values": (changed("tensors.0.shape", [2**30, 2**30]), "more than 2,000,000,000 values"),
    "values of a sample": (changed("input.shape", [10**4, 10**4]), "input: .* more than 10,000,000 values a sample"),
    "outputs of a sample": (changed("output", [2**13, 2**13]), "output: .* more than 33,554,432 values a sample"),
    "dtype": (changed("tensors.0.dtype", "complex64"), "tensors.0.dtype"),
    "discriminator": (changed("role", "discriminator"), "one score a sample"),
    "generator": (changed("role", "generator") | {"input": {"shape": [1, 4, 4]}}, "reads noise"),
    "probability": (changed("gives", "probability"), "is of discriminators"),
    "no nodes": (changed("train.nodes", []), "train.nodes"),
    "too few arguments": (node("aten.linear.default", {"node": "fc"}), "'weight' is missing"),
    "too many arguments": (node("aten.relu.default", {"node": "fc"}, 1), "takes 1 of them"),
    "argument twice": (node("aten.relu.default", {"node": "fc"}, self={"node": "fc"}), "'self' is there twice"),
    "unknown argument": (node("aten.relu.default", {"node": "fc"}, device="cpu"), "'device' is none of self"),
    "no tensor": (node("aten.relu.default", 1.5), "self: should be a tensor"),
    "text for a number": (node("aten.softmax.int", {"node": "fc"}, "1"), "dim: should be a whole number"),
    "truth for a number": (node("aten.softmax.int", {"node": "fc"}, True), "dim: should be a whole number"),
    "number for truth": (node("aten.dropout.default", {"node": "fc"}, 0.1, 1), "train: should be true or false"),
    "number beyond": (node("aten.softmax.int", {"node": "fc"}, 2**60), "dim: should be a whole number within"),
    "float beyond": (node("aten.add.Scalar", {"node": "fc"}, 1e300), "other: should be a number within"),
    "word": (node("aten.gelu.default", {"node": "fc"}, approximate="exec"), "approximate: should be one of the words"),
    "equation": (node("aten.einsum.default", "a->a;rm", [{"node": "fc"}]), "equation: should be"),
    "dtype of an argument": (node("aten.to.dtype", {"node": "fc"}, {"dtype": "complex64"}), "dtype: should be"),
    "list": (node("aten.view.default", {"node": "fc"}, 3), "size: should be a list"),
    "long list": (node("aten.view.default", {"node": "fc"}, [1] * 4097), "size: has 4097 members"),
    "deep list": (node("aten.view.default", {"node": "fc"}, [[1]]), "size: should be a whole number"),
    "gap": (node("aten.cat.default", [{"node": "fc"}, None]), "tensors: should be a tensor"),
    "member of none": (node("getitem", {"node": "fc"}, 0), "self: should be a node that gives several"),
    "two keys": (node("aten.relu.default", {"node": "fc", "tensor": "seen"}), "self: should be a tensor"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bent_document_is_refused_with_place_and_remedy(name: str) -> None:
    bent, said = BAD[name]
    with pytest.raises(NetworkError, match=said):
        checks.read(text(bent))


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (b"", "no JSON"),
        (b"\xff\xfe", "no JSON: it is not UTF-8 from byte 0 on"),
        (b"[" * 100_000, "no JSON: it is nested too deeply"),
        (b'{"version": 1, "version": 1}', "the key 'version' is there twice"),
        (b'{"version": NaN}', "NaN is no JSON"),
        (b"[1" + b"0" * 5000 + b"]", "no JSON"),
        (b" " * (1024 * 1024 + 1), "has 1048577 bytes, and may have 1048576"),
        (b"3", "an object"),
    ],
)
def test_what_is_no_document_at_all_is_refused(bad: bytes, said: str) -> None:
    with pytest.raises(NetworkError, match=said):
        checks.read(bad)


def test_a_document_has_one_form_and_one_digest() -> None:
    first = document.canonical(checks.read(text()))
    again = document.canonical(checks.read(first))
    shuffled = dict(reversed(list(GOOD.items())))
    assert first == again == document.canonical(checks.read(text(shuffled)))
    assert document.digest_of(first) == document.digest_of(again)
    assert document.digest_of(first) != document.digest_of(
        document.canonical(checks.read(text(changed("output", [2]))))
    )


def test_nodes_that_only_add_to_what_is_read_are_let_be() -> None:
    assert len(checks.read(text(changed("train.nodes.3", RELU))).train.nodes) == 4


def test_a_document_is_checked_without_torch() -> None:
    code = "import sys, contract.networks.checks; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("row", ["relu", "relu(Tensor) -> Tensor", "relu(Tensor[ self) -> Tensor"])
def test_what_is_no_schema_is_refused(row: str) -> None:
    with pytest.raises(ValueError, match="of an operator"):
        read_schema(row)
