"""Every operator of the list: its row is torch's own schema, and a document that calls it gets what torch gives."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from contract.networks import checks
from contract.networks.document import Constant, Document, Graph, Input, Node, canonical
from contract.networks.document import Tensor as Described
from contract.networks.operators import OPERATORS
from contract.networks.schemas import Operator, read_schema
from contract.nn.graphs.module import GraphNetwork
from contract.nn.graphs.program import function_of

ATEN = sorted(name for name in OPERATORS if name.startswith("aten."))


@dataclass(frozen=True)
class T:
    """A tensor of a case: values in (0, 1), or of another dtype below `top`."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    top: int = 2

    def make(self, number: int) -> Tensor:
        source = torch.Generator().manual_seed(number)
        if self.dtype == "float32":
            return torch.rand(self.shape, generator=source) * 0.9 + 0.05
        return torch.randint(0, self.top, self.shape, generator=source).to(getattr(torch, self.dtype))


def t(*shape: int) -> T:
    return T(shape)


X, V, M, IDS, B = t(2, 4, 6), t(6), t(2, 4, 4), T((2, 4, 6), "int64"), T((2, 4, 6), "bool")
F32, PAIR = {"dtype": "float32"}, [2, 2]
CASES: dict[str, list[Any]] = {}


def case(names: str, *args: Any, **kwargs: Any) -> None:
    for name in names.split():
        CASES[f"aten.{name}" if "." in name else f"aten.{name}.default"] = [list(args), kwargs]


case(
    "relu relu_ relu6 relu6_ leaky_relu leaky_relu_ elu elu_ celu selu silu silu_ mish hardtanh hardtanh_ hardswish "
    "hardswish_ hardsigmoid sigmoid tanh softplus log_sigmoid neg abs exp log log1p expm1 sqrt rsqrt square reciprocal "
    "sign sin cos erf floor ceil round sum mean squeeze contiguous clone detach alias mT zeros_like ones_like",
    X,
)
case("t", t(2, 3))
case("gelu", X, approximate="tanh")
case("prelu", X, t(4))
case("glu softmax.int log_softmax.int cumsum unbind.int squeeze.dim unsqueeze", X, 1)
case("threshold", X, 0.2, 0.1)
case("select.int", X, 1, -1)
case("amax amin logsumexp", X, [1], True)
for n in (1, 2, 3):
    image, kernel = t(2, 4, *(5,) * n), t(4, 2, *(3,) * n)
    case(f"conv{n}d", image, kernel, t(4), [2] * n, [1] * n, [1] * n, 2)
    case(f"max_pool{n}d avg_pool{n}d", image, [2] * n, [2] * n)
    case(f"adaptive_avg_pool{n}d", image, [2] * n)
    case(f"upsample_nearest{n}d.vec", image, None, [2.0] * n)
    if n < 3:
        case(f"conv{n}d.padding", image, kernel, None, [1] * n, "same", [1] * n, 2)
        case(f"conv_transpose{n}d" + ".input" * (n == 2), image, t(4, 2, *(3,) * n), t(2), [2] * n, [1] * n)
case("adaptive_max_pool2d", t(2, 4, 5, 5), PAIR)
case("upsample_linear1d.vec", t(2, 4, 5), [9], True, None)
case("upsample_bilinear2d.vec upsample_bicubic2d.vec", t(2, 4, 5, 5), [9, 9], False, None)
case("upsample_trilinear3d.vec", t(1, 2, 3, 3, 3), [5, 5, 5], False, None)
case("pixel_shuffle", t(2, 8, 3, 3), 2)
case("pixel_unshuffle", t(2, 2, 4, 4), 2)
case("channel_shuffle", t(2, 4, 3, 3), 2)
case("im2col", t(2, 4, 5, 5), PAIR, [1, 1], [0, 0], PAIR)
case("pad", X, [1, 1], "reflect")
case("constant_pad_nd", X, [1, 0, 0, 2], 0.5)
case("linear", X, t(3, 6), t(3))
case("matmul", X, t(6, 3))
case("mm", t(3, 4), t(4, 2))
case("bmm", X, t(2, 6, 3))
case("mv", t(3, 4), t(4))
case("addmm", t(2), t(3, 4), t(4, 2), beta=0.5, alpha=2)
case("baddbmm", t(2, 4, 3), X, t(2, 6, 3))
case("einsum", "bij,bkj->bik", [X, X])
case("batch_norm instance_norm", X, t(4), t(4), t(4), t(4), True, 0.1, 1e-5, False)
case("layer_norm rms_norm", X, [6], V)
case("group_norm", X, 2, t(4), t(4))
case("_weight_norm", t(3, 4), t(3, 1))
case("dropout feature_dropout alpha_dropout", X, 0.5, True)
case("bernoulli_.float", X, 0.3)
case("rand_like randn_like", X)
case("rand zeros ones", [2, 3], dtype=F32)
case("full", [2, 3], {"float": "-inf"}, dtype=F32)
case("arange", 5)
case("arange.start", 1, 5)
case("arange.start_step", 1, 7, 2, dtype=F32)
case("linspace", 0, 1, 5)
case("scalar_tensor", 0.5)
case("full_like", X, 3)
case("new_zeros new_ones", X, [3], dtype={"dtype": "int64"})
case("new_full", X, [3], 7)
case("embedding", t(5, 3), T((2, 4), "int64", 5), 0)
STATE = t(1, 2, 3)
WEIGHTS = {gates: [t(gates * 3, 6), t(gates * 3, 3), t(gates * 3), t(gates * 3)] for gates in (1, 3, 4)}
case("lstm.input", X, [STATE, STATE], WEIGHTS[4], True, 1, 0.0, False, False, True)
case("gru.input", X, STATE, WEIGHTS[3], True, 1, 0.0, False, False, True)
case("rnn_tanh.input rnn_relu.input", X, STATE, WEIGHTS[1], True, 1, 0.0, False, False, True)
case("scaled_dot_product_attention", t(2, 2, 4, 3), t(2, 2, 4, 3), t(2, 2, 4, 3), None, 0.0, True, scale=0.5)
case(
    "add.Tensor add_.Tensor sub.Tensor sub_.Tensor rsub.Tensor mul.Tensor mul_.Tensor div.Tensor div_.Tensor minimum "
    "maximum max.other min.other pow.Tensor_Tensor eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor "
    "floor_divide expand_as type_as copy_ clamp.Tensor",
    X,
    X,
)
case(
    "add.Scalar add_.Scalar sub.Scalar rsub.Scalar mul.Scalar mul_.Scalar div.Scalar remainder.Scalar "
    "pow.Tensor_Scalar eq.Scalar ne.Scalar lt.Scalar le.Scalar gt.Scalar ge.Scalar clamp clamp_ clamp_min clamp_max",
    X,
    0.5,
)
case("div.Tensor_mode", X, X, rounding_mode="floor")
case("div.Scalar_mode", X, 0.3, rounding_mode="trunc")
case("pow.Scalar", 2, X)
case("lerp.Scalar", X, X, 0.3)
case("lerp.Tensor addcmul", X, X, X)
case("where.self", B, X, X)
case("where.ScalarOther", B, X, 0.0)
case("where.ScalarSelf", B, 1.0, X)
case("where.Scalar", B, 1.0, 0.0)
case("logical_not bitwise_not", B)
case("logical_and logical_or bitwise_and.Tensor bitwise_or.Tensor", B, B)
case("masked_fill.Scalar masked_fill_.Scalar", X, B, {"float": "-inf"})
case("masked_fill.Tensor", X, B, t())
case("sum.dim_IntList mean.dim var.dim std.dim", X, [1, 2], True)
case("var.correction std.correction var_mean.correction", X, [1], correction=0)
case("linalg_vector_norm", X, 2, [1])
case("max.dim min.dim", X, 1)
case("cosine_similarity", X, X, 1)
case("view reshape", X, [2, 24])
case("flatten.using_ints", X, 1)
case("unflatten.int", X, 2, [2, 3])
case("permute", X, [2, 0, 1])
case("transpose.int swapaxes movedim.int", X, 0, 1)
case("diagonal", X, 0, 0, 1)
case("movedim.intlist", X, [0, 1], [1, 0])
case("squeeze.dims", t(2, 1, 3, 1), [1, 3])
case("expand", t(1, 6), [4, -1])
case("repeat tile", X, [1, 2, 1])
case("repeat_interleave.self_int", X, 2, 1)
case("cat stack", [X, X], 1)
case("chunk split.Tensor", X, 2, 1)
case("split_with_sizes", X, [1, 3], 1)
case("slice.Tensor", X, 2, 1, 5, 2)
case("narrow", X, 2, 1, 3)
case("index_select", X, 2, T((3,), "int64", 6))
case("gather", X, 2, IDS)
case("index.Tensor", X, [None, T((3,), "int64", 4)])
case("roll", X, [1], [2])
case("flip", X, [1, 2])
case("tril triu", M, 1)
case("unfold", X, 2, 3, 1)
case("meshgrid", [t(2), t(3)])
case("to.dtype", X, {"dtype": "float64"})
case("to.dtype_layout", X, dtype={"dtype": "float16"})
case("contiguous", t(2, 4, 5, 5), memory_format="channels_last")
case("sym_size.int", X, 1)


def _tensors(value: Any) -> Iterator[T]:
    if isinstance(value, T):
        yield value
    for each in value if isinstance(value, list) else []:
        yield from _tensors(each)


def _written(value: Any, names: list[str]) -> Any:
    """Return an argument as a document says it, and note the names of its tensors."""
    if isinstance(value, T):
        names.append(f"t{len(names)}")
        return {"tensor": names[-1]}
    return [_written(each, names) for each in value] if isinstance(value, list) else value


def _plain(value: Any, made: Iterator[Tensor]) -> Any:
    """Return an argument as torch takes it."""
    if isinstance(value, T):
        return next(made)
    if isinstance(value, dict):
        return getattr(torch, value["dtype"]) if "dtype" in value else float(value["float"])
    if isinstance(value, list):
        return [_plain(each, made) for each in value]
    return getattr(torch, value) if value == "channels_last" else value


def _network(op: str, args: list[Any], kwargs: dict[str, Any]) -> GraphNetwork:
    names: list[str] = []
    call = Node(name="call", op=op, args=_written(args, names), kwargs=kwargs)
    nodes = [call]
    if OPERATORS[op].gives == "tensors":
        nodes += [Node(name="first", op="getitem", args=[{"node": "call"}, 0])]
    if OPERATORS[op].gives == "int":
        nodes += [Node(name="first", op="aten.full.default", args=[[2], {"node": "call"}])]
    graph = Graph(nodes=nodes, output=nodes[-1].name)
    kinds = list(_tensors(args))
    tensors = [
        Described(name=name, dtype=kind.dtype, shape=list(kind.shape), kind="buffer")  # type: ignore[arg-type]
        for name, kind in zip(names, kinds, strict=True)
    ]
    other = Graph(nodes=[Node(name="same", op="aten.relu.default", args=[{"node": "input"}])], output="same")
    document = Document(input=Input(shape=[2]), output=[2], tensors=tensors, train=graph, eval=other)
    network = GraphNetwork(checks.read(canonical(document)))
    network.load_state_dict({name: kind.make(n) for n, (name, kind) in enumerate(zip(names, kinds, strict=True))})
    return network


def test_every_operator_has_a_case() -> None:
    assert sorted(CASES) == ATEN


@pytest.mark.parametrize("name", ATEN)
def test_a_document_gets_what_torch_gives(name: str) -> None:
    args, kwargs = CASES[name]
    network = _network(name, args, kwargs)
    made = iter([kind.make(number) for number, kind in enumerate(_tensors(args))])
    plain = [_plain(each, made) for each in args]
    torch.manual_seed(1)
    wanted = function_of(name)(*plain, **{key: _plain(each, made) for key, each in kwargs.items()})
    torch.manual_seed(1)
    found = network(torch.zeros(3, 2))
    first = wanted[0] if isinstance(wanted, list | tuple) else wanted
    first = torch.full((2,), first) if isinstance(first, int) else first
    assert found.dtype == first.dtype
    assert torch.equal(found, first)


_ALIAS = re.compile(r"\(([a-z]+)(!?)( -> \*)?\)")


def _form(operator: Operator) -> list[tuple[Any, ...]]:
    return [
        (a.name, a.type, a.listed, a.optional, a.gaps, a.required, a.keyword, a.changed) for a in operator.arguments
    ]


@pytest.mark.parametrize("name", ATEN)
def test_a_row_is_the_schema_of_torch(name: str) -> None:
    text = str(function_of(name)._schema).removeprefix("aten::")  # type: ignore[attr-defined]
    text = _ALIAS.sub(r"\2", text)
    text = re.sub(r", (Layout|Device|Generator)\? \w+=None|, bool\? pin_memory=None|, \*(?=\))", "", text)
    theirs = read_schema(re.sub(r"(?<=-> Tensor)!", "", text), "aten.")
    assert theirs.name == name
    assert _form(theirs) == _form(OPERATORS[name])
    assert theirs.gives == OPERATORS[name].gives


def test_constants_are_given_as_they_are() -> None:
    nodes = [Node(name="y", op="aten.add.Tensor", args=[{"node": "input"}, {"tensor": "c"}])]
    graph = Graph(nodes=nodes, output="y")
    constant = Constant(name="c", dtype="float32", shape=[2], values=[0.1, 3])
    document = Document(input=Input(shape=[2]), output=[2], tensors=[], constants=[constant], train=graph, eval=graph)
    network = GraphNetwork(checks.read(canonical(document)))
    assert torch.equal(network(torch.zeros(1, 2)), torch.tensor([[0.1, 3.0]]))
    assert network.state_dict() == {}


@pytest.mark.parametrize(
    ("op", "args", "wanted"),
    [
        ("int.add", [3, 4], 7),
        ("int.sub", [3, 4], -1),
        ("int.mul", [3, 4], 12),
        ("int.floordiv", [-7, 2], -4),
        ("int.mod", [-7, 2], 1),
        ("int.neg", [3], -3),
    ],
)
def test_whole_numbers_are_reckoned_as_python_does(op: str, args: list[int], wanted: int) -> None:
    assert function_of(op)(*args) == wanted


def test_whole_numbers_that_no_edge_can_have_are_refused() -> None:
    with pytest.raises(ValueError, match="55 bits"):
        function_of("int.mul")(2**53, 2)
