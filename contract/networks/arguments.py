"""One node's arguments, held against its operator's schema."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

from contract.bounds import COUNT
from contract.networks.document import Dtype, Node
from contract.networks.errors import NetworkError
from contract.networks.schemas import Argument, Kind, Operator

LONGEST = 4096
"""Most members of a list."""
_FLOAT_END = 3.5e38  # a little beyond the ends of float32, which masks are filled with
_WORDS: Mapping[str, frozenset[str]] = {
    "padding": frozenset({"valid", "same"}),
    "approximate": frozenset({"none", "tanh"}),
    "mode": frozenset({"constant", "reflect", "replicate", "circular"}),
    "rounding_mode": frozenset({"trunc", "floor"}),
    "memory_format": frozenset({"contiguous_format", "channels_last", "preserve_format"}),
}
_NUMBERS = frozenset({"other", "exponent"})
"""Tensors in whose place torch takes a number."""
_EQUATION = re.compile(r"[A-Za-z., >-]{1,100}")
_DTYPES = frozenset(get_args(Dtype))


class Scope:
    """What the arguments of a node may name: earlier nodes and what they give, and the network's tensors."""

    def __init__(self, tensors: frozenset[str]):
        self.nodes: dict[str, Kind] = {}
        self.tensors = tensors


def named(value: Any, key: str) -> Iterator[str]:
    """Yield the names that stand under a key (`node` or `tensor`) in an argument, lists included."""
    if isinstance(value, list):
        for each in value:
            yield from named(each, key)
    elif isinstance(value, dict) and isinstance(value.get(key), str):
        yield value[key]


def paired(node: Node, operator: Operator) -> Iterator[tuple[Argument, Any]]:
    """Yield the arguments that a node gives, each with what the operator says of it.

    Raises:
        NetworkError: one is given that there is not, or twice, or one is missing.
    """
    plain = [each for each in operator.arguments if not each.keyword]
    if len(node.args) > len(plain):
        raise NetworkError("args", f"it takes {len(plain)} of them, and {len(node.args)} are there; leave the rest out")
    given = {each.name for each, _ in zip(plain, node.args, strict=False)}
    yield from zip(plain, node.args, strict=False)
    known = {each.name: each for each in operator.arguments}
    for name, value in node.kwargs.items():
        if name not in known or name in given:
            what = "is there twice" if name in given else f"is none of {', '.join(known) or 'its arguments'}"
            raise NetworkError("kwargs", f"{name[:64]!r} {what}; leave it out")
        yield known[name], value
    missing = [each.name for each in operator.arguments if each.required and each.name not in given | set(node.kwargs)]
    if missing:
        raise NetworkError("args", f"{missing[0]!r} is missing; give it")


def check(argument: Argument, value: Any, scope: Scope) -> None:
    """Refuse what an argument may not be.

    Raises:
        NetworkError: with what was expected.
    """
    if value is None and argument.optional:
        return
    if not argument.listed or (argument.spread and not isinstance(value, list)):
        _check_one(argument, value, scope)
        return
    if not isinstance(value, list):
        raise _wrong(argument, value, f"a list of {_said(argument)}")
    if len(value) > LONGEST:
        raise NetworkError(argument.name, f"has {len(value)} members, and may have {LONGEST}")
    for each in value:
        if not (each is None and argument.gaps):
            _check_one(argument, each, scope)


def _check_one(argument: Argument, value: Any, scope: Scope) -> None:
    fits, expected = _KINDS[argument.type]
    if not fits(argument, value, scope):
        raise _wrong(argument, value, expected)


def _wrong(argument: Argument, value: Any, expected: str) -> NetworkError:
    return NetworkError(argument.name, f"should be {expected}, not {_shown(value)}")


def _said(argument: Argument) -> str:
    return _KINDS[argument.type][1]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _only(value: Any, key: str) -> Any:
    """Return what stands under the one key of an object, else None."""
    return value[key] if isinstance(value, dict) and len(value) == 1 and key in value else None


def _reads(value: Any, scope: Scope, kind: Kind) -> bool:
    """Whether it names an earlier node that gives such a thing.

    Raises:
        NetworkError: it names none that is earlier.
    """
    node = _only(value, "node")
    if not isinstance(node, str):
        return False
    if node not in scope.nodes:
        what = "is no earlier node; a node reads what stands before it, so a graph has no cycles"
        raise NetworkError("", f"{node[:64]!r} {what}")
    return scope.nodes[node] == kind


def _is_tensor(argument: Argument, value: Any, scope: Scope) -> bool:
    name = _only(value, "tensor")
    if isinstance(name, str):
        if name not in scope.tensors:
            raise NetworkError(argument.name, f"{name[:64]!r} is none of the network's tensors; list it")
        return True
    return (argument.name in _NUMBERS and _is_number(value)) or _reads(value, scope, "tensor")


def _is_number(value: Any) -> bool:
    if isinstance(value, int):
        return abs(value) <= COUNT
    return isinstance(value, float) and math.isfinite(value) and abs(value) <= _FLOAT_END


def _is_whole(argument: Argument, value: Any, scope: Scope) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool) and abs(value) <= COUNT) or _reads(
        value, scope, "int"
    )


def _is_scalar(argument: Argument, value: Any, scope: Scope) -> bool:
    return _is_number(value) or _only(value, "float") in ("inf", "-inf") or _reads(value, scope, "int")


def _is_float(argument: Argument, value: Any, scope: Scope) -> bool:
    return (_is_number(value) and not isinstance(value, bool)) or _only(value, "float") in ("inf", "-inf")


def _is_word(argument: Argument, value: Any, scope: Scope) -> bool:
    if argument.name == "equation":
        return isinstance(value, str) and _EQUATION.fullmatch(value) is not None
    return isinstance(value, str) and value in _WORDS[argument.name]


_Fits = Callable[[Argument, Any, Scope], bool]
_KINDS: Mapping[str, tuple[_Fits, str]] = {
    "Tensor": (_is_tensor, "a tensor: {'node': …} of an earlier node that gives one, or {'tensor': …}"),
    "Tensors": (lambda _, value, scope: _reads(value, scope, "tensors"), "a node that gives several tensors"),
    "int": (_is_whole, f"a whole number within {COUNT}, or a node that gives one"),
    "SymInt": (_is_whole, f"a whole number within {COUNT}, or a node that gives one"),
    "Scalar": (_is_scalar, f"a number within {_FLOAT_END:g}, {{'float': 'inf'}}, or a node that gives a whole one"),
    "float": (_is_float, f"a number within {_FLOAT_END:g}, or {{'float': 'inf'}}"),
    "bool": (lambda _, value, scope: isinstance(value, bool), "true or false"),
    "str": (_is_word, "one of the words that the operator knows"),
    "MemoryFormat": (_is_word, "contiguous_format, channels_last or preserve_format"),
    "ScalarType": (lambda _, value, scope: _only(value, "dtype") in _DTYPES, "{'dtype': 'float32'} or such"),
}
