"""Shapes are told before anything is allocated: what does not fit, or would not fit into memory, is refused."""

from typing import Any

import pytest

from contract.networks import checks
from contract.networks.errors import NetworkError
from contract.nn.graphs import shapes
from tests.contract.networks.documents import GOOD, changed, text


def chain(*calls: tuple[str, Any], output: list[int] | None = None, **more: Any) -> dict[str, Any]:
    """Return a document whose graphs are calls in a row: n0, n1, …"""
    nodes = [{"name": f"n{number}", "op": op, "args": args} for number, (op, args) in enumerate(calls)]
    graph = {"nodes": nodes, "output": f"n{len(nodes) - 1}"}
    head = {"input": {"shape": [4]}, "output": output or [4], "tensors": []}
    return head | {"train": graph, "eval": graph} | more


def check(document: dict[str, Any]) -> None:
    shapes.check(checks.read(text(document)))


X = {"node": "input"}
HUGE = 1_000_000_000_000
WEIGHTS = [{"name": name, "dtype": "float32", "shape": shape, "kind": "parameter"} for name, shape in (
    ("ih", [12, 4]), ("hh", [12, 3]), ("bi", [12]), ("bh", [1]),
)]  # fmt: skip
LSTM = ("aten.lstm.input", [
    {"node": "n1"}, [{"node": "n2"}, {"node": "n2"}], [{"tensor": w["name"]} for w in WEIGHTS],
    True, 1, 0.0, False, False, True,
])  # fmt: skip
READ = [
    ("aten.sym_size.int", [X, 0]),
    ("aten.unsqueeze.default", [X, 1]),
    ("aten.zeros.default", [[1, {"node": "n0"}, 3]]),
]

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "output": (changed("output", [7]), r"train.output: gives \[2, 3\] for 2 samples, and the document says \[2, 7\]"),
    "weights": (changed("tensors.0.shape", [3, 5]), r"train: in node 'fc' \(aten.linear.default\)"),
    "axis": (chain(("aten.transpose.int", [X, 0, 9])), r"in node 'n0' \(aten.transpose.int\): Dimension out of range"),
    "memory": (chain(("aten.zeros.default", [[HUGE]])), r"in node 'n0' .*make 1,000,000,000,000 values"),
    "repeats": (
        chain(*[("aten.repeat.default", [{"node": f"n{n - 1}"} if n else X, [1, 64]]) for n in range(6)]), "values"
    ),
    "count": (chain(("aten.arange.default", [HUGE])), "values"),
    "numbers": (chain(("aten.sym_size.int", [X, 0]), ("int.add", [{"node": "n0"}, 9]), *[
        ("int.mul", [{"node": f"n{n}"}] * 2) for n in range(1, 9)
    ], ("aten.zeros.default", [[{"node": "n9"}]])), "no size of anything"),
    "zero": (chain(READ[0], ("int.floordiv", [{"node": "n0"}, 0]), ("aten.relu.default", [X])), "zero"),
    "integers": (chain(("aten.to.dtype", [X, {"dtype": "int64"}])), "train.output: gives"),
    "recurrent": (
        chain(*READ, LSTM, ("getitem", [{"node": "n3"}, 0]), ("aten.squeeze.dim", [{"node": "n4"}, 1]),
              output=[3], tensors=WEIGHTS),
        r"in node 'n3' \(aten.lstm.input\): params: the layer's weights do not fit: \[1\] instead of \[12\]",
    ),
}  # fmt: skip


def test_a_good_document_passes() -> None:
    check(GOOD)


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_refused(name: str) -> None:
    bent, said = BAD[name]
    with pytest.raises(NetworkError, match=said):
        check(bent)
