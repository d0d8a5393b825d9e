"""The one reader of safetensors files: against every way in which a header can lie."""

import json
import struct
from typing import Any

import numpy as np
import pytest

from contract.tensors import (
    MAX_HEADER_BYTES,
    MAX_NAME,
    MAX_TENSORS,
    StreamCheck,
    TensorError,
    header_length,
    parse_header,
)
from tests.contract.conftest import Write

from .tensor_files import ARRAYS, feed, raw

# ----------------------------------------------------------------------------------------------------------- headers
ENTRY = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
LIES: dict[str, tuple[Any, str]] = {
    "array": (b"[1]", "does not start with"),
    "empty": (b"", "claims 0 bytes"),
    "text": (b'"abc"', "does not start with"),
    "not JSON": (b"{,}", "not JSON"),
    "NaN": (b'{"a": NaN}', "not JSON"),
    "Infinity": (b'{"__metadata__": {}, "a": -Infinity}', "not JSON"),
    "latin-1": ('{"é": 1}'.encode("latin-1"), "UTF-8"),
    "deep": (b'{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}", "deep"),
    "huge number": (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
    "twice": (b'{"a": {}, "a": {}}', "twice"),
    "twice inside": (b'{"a": {"dtype": "F32", "dtype": "F32"}}', "twice"),
    "metadata twice": (b'{"__metadata__": {}, "__metadata__": {}}', "twice"),
    "metadata list": ({"__metadata__": []}, "strings"),
    "metadata null": ({"__metadata__": None}, "strings"),
    "metadata number": ({"__metadata__": {"a": 1}}, "strings"),
    "metadata surrogate": (b'{"__metadata__": {"a": "\\ud800"}}', "surrogate"),
    "entry is a list": ({"a": []}, "exactly"),
    "entry is null": ({"a": None}, "exactly"),
    "more keys": ({"a": ENTRY | {"extra": 1}}, "exactly"),
    "no dtype": ({"a": {"shape": [], "data_offsets": [0, 4]}}, "exactly"),
    "dtype null": ({"a": ENTRY | {"dtype": None}}, "not supported"),
    "dtype list": ({"a": ENTRY | {"dtype": ["F32"]}}, "not supported"),
    "dtype F8": ({"a": ENTRY | {"dtype": "F8_E4M3"}}, "not supported"),
    "shape text": ({"a": ENTRY | {"shape": "1"}}, "whole numbers"),
    "shape float": ({"a": ENTRY | {"shape": [1.0]}}, "whole numbers"),
    "shape bool": ({"a": ENTRY | {"shape": [True]}}, "whole numbers"),
    "shape negative": ({"a": ENTRY | {"shape": [-1, -1]}}, "whole numbers"),
    "shape huge": ({"a": ENTRY | {"shape": [2**63]}}, "whole numbers"),
    "rank": ({"a": ENTRY | {"shape": [1] * 17}}, "whole numbers"),
    "overflowing product": ({"a": ENTRY | {"shape": [2**62, 4]}}, "needs"),
    "offsets text": ({"a": ENTRY | {"data_offsets": "04"}}, "two whole numbers"),
    "offsets three": ({"a": ENTRY | {"data_offsets": [0, 4, 8]}}, "two whole numbers"),
    "offsets backwards": ({"a": ENTRY | {"data_offsets": [4, 0]}}, "needs 4 bytes"),
    "hole at the start": ({"a": ENTRY | {"data_offsets": [4, 8]}}, "belong to no tensor"),
    "overlap": ({"a": ENTRY, "b": ENTRY}, "share bytes"),
    "empty name": ({"": ENTRY}, "0 characters"),
    "long name": ({"x" * (MAX_NAME + 1): ENTRY}, "characters"),
}


@pytest.mark.parametrize("case", LIES)
def test_headers_that_lie(case: str) -> None:
    header, said = LIES[case]
    with pytest.raises(TensorError) as caught:
        feed(raw(header, bytes(16)))
    assert said in caught.value.detail
    assert caught.value.code in ("container", "tensors")
    assert str(caught.value) == caught.value.detail


@pytest.mark.parametrize("length", [0, 1, MAX_HEADER_BYTES + 1, 90_000_000, 2**63, 2**64 - 1])
def test_a_length_out_of_bounds_asks_for_no_memory(length: int) -> None:
    with pytest.raises(TensorError, match="header claims"):
        header_length(struct.pack("<Q", length) + b"{")
    check = StreamCheck()
    with pytest.raises(TensorError, match="header claims"):
        check.feed(struct.pack("<Q", length) + b"{}")


def test_too_many_tensors() -> None:
    tree = {str(i): {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for i in range(MAX_TENSORS + 1)}
    with pytest.raises(TensorError, match="at most"):
        feed(raw(tree))


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (b"PK\x03\x04" + bytes(60), "zip"),
        (b"\x1f\x8b" + bytes(60), "gzip"),
        (b"\x80\x02}q" + bytes(60), "pickle"),
        (b"\x80\x05\x95" + bytes(60), "pickle"),
        (b"\x93NUMPY" + bytes(60), "numpy"),
        (b"\x89HDF\r\n\x1a\n" + bytes(60), "HDF5"),
        (b"version https://git-lfs.github.com/spec/v1", "Git LFS"),
        (b"<!doctype html>" + bytes(60), "HTML"),
        (b'{"a": 1, "b": 2}', "JSON"),
    ],
)
def test_what_is_sent_by_mistake_is_called_by_its_name(first: bytes, said: str) -> None:
    for size in (0, 1):
        with pytest.raises(TensorError) as caught:
            feed(first, size=size)
        assert said in caught.value.detail
        assert "safetensors" in caught.value.detail


@pytest.mark.parametrize(
    ("header", "members"),
    [
        (b'{"a": {}, "\\u0061": {}}', {"tensor": "a"}),
        (b'{"a": {"dtype": "F64", "dtype": "F32"}}', {"field": "dtype"}),
        (b'{"__metadata__": {}, "__metadata__": {}}', {"field": "__metadata__"}),
        (b'{"__metadata__": {"num_samples": "1", "num_samples": "2"}}', {"field": "num_samples"}),
        (b'{"__metadata__": [["a", "b"]]}', {"field": "__metadata__"}),
        (b'{"__metadata__": {"a": "b", "loss": 0.5}}', {"field": "loss"}),
        (b'{"__metadata__": {"note": "\\udfff"}}', {"field": "note"}),
        (b'{"__metadata__": {"\\ud800": "b"}}', {"field": "\\ud800"}),
    ],
)
def test_programs_are_told_whether_a_tensor_or_a_field_is_at_fault(header: bytes, members: dict[str, str]) -> None:
    with pytest.raises(TensorError) as caught:
        feed(raw(header))
    assert (caught.value.code, caught.value.members) == ("container", members)


def test_a_header_of_any_order_and_with_spaces_is_sound(make: Write) -> None:
    data = make({"a": ARRAYS["a"], "n": ARRAYS["n"]})
    tree = json.loads(data[8 : 8 + header_length(data)])
    body = data[8 + header_length(data) :]
    turned = raw(json.dumps(dict(reversed(tree.items()))).encode() + b" " * 4096, body)
    assert list(feed(turned).tensors) == ["a", "n"]  # by place in the file


def test_more_than_the_header_does_no_harm(make: Write) -> None:
    data = make({"a": ARRAYS["a"]})
    header = parse_header(data)
    assert header == parse_header(data[: 8 + header_length(data)])
    assert (header.data_start, header.data_bytes) == (8 + header_length(data), 24)


@pytest.mark.parametrize(
    ("text", "names"),
    [('["a", "n"]', {"a", "n"}), ("[]", set()), ("{", set()), ('{"a": 1}', set()), ('["a", 3]', {"a"}), (None, set())],
)
def test_buffers_are_named_in_the_metadata(make: Write, text: str | None, names: set[str]) -> None:
    data = make({"a": ARRAYS["a"]}, {} if text is None else {"potstill.buffers": text})
    assert parse_header(data).buffers == names


def test_batch_norms_buffers_are_known_by_their_names(make: Write) -> None:
    """A file that somebody else wrote does not say which tensors are buffers."""
    value = ARRAYS["a"]
    names = {"bn.running_mean": value, "running_var": value, "a.b.num_batches_tracked": np.array(3), "mean": value}
    assert parse_header(make(names)).buffers == {"bn.running_mean", "running_var", "a.b.num_batches_tracked"}
