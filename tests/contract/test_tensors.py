"""The one reader of safetensors files: against the library, against damage at every byte, against every way to lie."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load as library_load
from safetensors.numpy import save as library_save

from contract.tensors import (
    BUFFERS_KEY,
    DTYPES,
    MAX_HEADER_BYTES,
    MAX_NAME,
    MAX_TENSORS,
    Header,
    StreamCheck,
    TensorError,
    TensorFile,
    TensorInfo,
    TensorWriter,
    check_file,
    compare,
    dtype_name,
    header_length,
    parse_header,
    write_file,
)

F32 = np.float32
ARRAYS = {
    "a": np.arange(6, dtype=F32).reshape(2, 3),
    "b.running_var": np.ones(4, F32),
    "n": np.array(7),
    "flag": np.array([True, False]),
    "half": np.ones(3, np.float16),
    "brain": np.ones(3, ml_dtypes.bfloat16),
    "double": np.ones(2, np.float64),
    "empty": np.zeros((0, 4), F32),
}


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., bytes]:
    """Return a function that gives the bytes of a written file."""

    def write(arrays: dict[str, Any], metadata: dict[str, str] | None = None) -> bytes:
        write_file(tmp_path / "made.safetensors", arrays, metadata)
        return (tmp_path / "made.safetensors").read_bytes()

    return write


def raw(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    head = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(head) if length is None else length) + head + data


def feed(data: bytes, manifest: Header | None = None, size: int = 0, total: int | None = None) -> Header:
    """Run a stream check over pieces of `size` bytes (0: in one piece)."""
    check = StreamCheck(manifest, total)
    for start in range(0, len(data), size or len(data) or 1):
        check.feed(data[start : start + (size or len(data))])
    return check.finish()


# --------------------------------------------------------------------------------------------- writing and reading
def test_what_is_written_is_read_back_bit_for_bit(make: Any, tmp_path: Path) -> None:
    data = make(ARRAYS, {"num_samples": "3"})
    with TensorFile(tmp_path / "made.safetensors") as file:
        assert file.names == list(ARRAYS)
        assert file.header.metadata == {"num_samples": "3"}
        assert file.header.total_size == len(data)
        for name, array in ARRAYS.items():
            assert file.info(name).shape == array.shape
            read = file.read(name)
            assert read.dtype == array.dtype
            assert read.tobytes() == array.tobytes()
            assert read.flags.owndata or read.base.flags.owndata
    assert make(ARRAYS, {"num_samples": "3"}) == data
    assert (8 + header_length(data)) % 8 == 0


def test_the_library_reads_what_we_write_and_we_read_what_it_writes(make: Any, tmp_path: Path) -> None:
    arrays = {name: array for name, array in ARRAYS.items() if name != "brain"}
    for name, array in library_load(make(arrays)).items():
        assert array.tobytes() == arrays[name].tobytes()
    path = tmp_path / "library.safetensors"
    path.write_bytes(library_save(arrays, {"format": "np"}))
    assert set(check_file(path).tensors) == set(arrays)
    with TensorFile(path) as file:
        for name, array in arrays.items():
            assert file.read(name).tobytes() == np.ascontiguousarray(array).tobytes()


@pytest.mark.parametrize(
    "odd",
    [np.asfortranarray(ARRAYS["a"]), ARRAYS["a"].T, np.arange(12, dtype=F32).reshape(2, 6)[:, ::2], ARRAYS["a"][::-1],
     ARRAYS["a"].astype(">f4"), np.broadcast_to(F32(3), (2, 3))],
)  # fmt: skip
def test_values_are_written_in_c_order_whatever_the_layout(make: Any, tmp_path: Path, odd: Any) -> None:
    make({"x": odd})
    with TensorFile(tmp_path / "made.safetensors") as file:
        np.testing.assert_array_equal(file.read("x"), odd)


shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
floats = hnp.arrays(F32, shapes, elements=st.floats(-(2.0**99), 2.0**99, width=32))
ints = hnp.arrays(np.int64, shapes)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(lambda n: n != "__metadata__")
everything = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@everything
@given(
    st.dictionaries(names, floats | ints, max_size=5),
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"]))
    ),
    st.integers(0, 64),
)
def test_any_sound_file_is_taken_in_pieces_of_any_size(
    make: Any, arrays: dict[str, Any], metadata: dict[str, str], size: int
) -> None:
    arrays = {name: array for name, array in arrays.items() if not name.endswith("running_var")}
    data = make(arrays, metadata)
    header = feed(data, size=size, total=len(data))
    assert list(header.tensors) == list(arrays)
    assert header.metadata == metadata
    assert feed(data, manifest=header, size=size).tensors == header.tensors
    assert set(library_load(data)) == set(arrays)


@everything
@given(st.binary(max_size=200), st.integers(0, 16))
def test_noise_is_refused_and_never_anything_else_than_refused(noise: bytes, size: int) -> None:
    try:
        header = feed(noise, size=size)
    except TensorError as error:
        assert error.code in ("container", "tensors", "values")
    else:
        assert header.total_size == len(noise)


@everything
@given(st.integers(0, 400), st.integers(0, 255), st.integers(0, 16))
def test_one_changed_byte_is_either_refused_or_another_sound_file(make: Any, at: int, byte: int, size: int) -> None:
    data = bytearray(make({"a": ARRAYS["a"], "n": ARRAYS["n"]}, {"k": "v"}))
    data[at % len(data)] = byte
    try:
        header = feed(bytes(data), size=size)
    except TensorError:
        return
    assert header.total_size == len(data)
    assert feed(bytes(data), size=0).tensors == header.tensors


def test_a_file_cut_at_any_byte_is_refused_alike_by_stream_and_by_file(make: Any, tmp_path: Path) -> None:
    data = make({"a": ARRAYS["a"], "flag": ARRAYS["flag"]}, {"k": "v"})
    path = tmp_path / "cut"
    for cut in range(len(data)):
        path.write_bytes(data[:cut])
        for check in (lambda: feed(data[:cut]), lambda: check_file(path), lambda: feed(data[:cut], size=3)):  # noqa: B023
            with pytest.raises(TensorError) as caught:
                check()
            assert caught.value.code == "container"
        with pytest.raises(TensorError):
            TensorFile(path)
    for more in (b"\0", bytes(100)):
        with pytest.raises(TensorError, match="no tensor"):
            feed(data + more)
        with pytest.raises(TensorError, match="no tensor"):
            feed(data + more, total=len(data) + len(more))


def test_an_announced_size_that_does_not_fit_is_known_with_the_header(make: Any) -> None:
    data = make({"a": ARRAYS["a"]})
    check = StreamCheck(None, len(data) + 5)
    with pytest.raises(TensorError) as caught:
        check.feed(data[: 8 + header_length(data)])
    assert (caught.value.members["expected"], caught.value.members["actual"]) == (len(data), len(data) + 5)


def test_the_header_is_told_once(make: Any) -> None:
    data = make({"a": ARRAYS["a"]})
    check = StreamCheck()
    assert [check.feed(data[i : i + 1]) for i in range(len(data))].count(True) == 1
    assert list(check.finish().tensors) == ["a"]
    assert check.received == len(data)


# ----------------------------------------------------------------------------------------------------------- values
@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 7, 64])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 1, 10, 23])
def test_a_value_that_is_not_finite_is_found_wherever_it_is(
    make: Any, size: int, dtype: Any, bad: float, at: int
) -> None:
    values = np.ones((2, 3, 4), dtype)
    values.reshape(-1)[at] = bad
    data = make({"before": np.ones(3, F32), "x": values, "after": np.ones(3, F32)})
    with pytest.raises(TensorError) as caught:
        feed(data, size=size)
    assert caught.value.code == "values"
    assert caught.value.members == {"tensor": "x", "index": list(np.unravel_index(at, (2, 3, 4)))}


def test_large_finite_values_whose_sum_overflows_are_taken(make: Any) -> None:
    for dtype in (np.float16, np.float32, np.float64, ml_dtypes.bfloat16):
        largest = ml_dtypes.finfo(dtype).max
        values = np.full(64, largest, dtype)
        assert feed(make({"x": values, "y": -values})).tensors["x"].numel == 64


@pytest.mark.parametrize("size", [0, 1, 4, 6])
def test_a_negative_running_variance_is_refused_and_other_negatives_are_not(make: Any, size: int) -> None:
    ok = {
        "bn.running_mean": np.full(4, -1, F32),
        "running_variance": np.full(4, -1, F32),
        "bn.running_var": np.zeros(4, F32),
    }
    feed(make(ok), size=size)
    bad = np.ones(4, F32)
    bad[2] = -1e-30
    with pytest.raises(TensorError, match="negative running variance") as caught:
        feed(make({"bn.running_var": bad}), size=size)
    assert caught.value.members["index"] == [2]


@pytest.mark.parametrize("size", [0, 1])
def test_a_bool_is_zero_or_one(make: Any, size: int) -> None:
    data = make({"flag": np.array([True, False, True])})
    feed(data, size=size)
    with pytest.raises(TensorError, match="neither 0 nor 1"):
        feed(data[:-1] + b"\x02", size=size)


def test_a_scalar_that_is_not_finite_has_an_empty_index(make: Any) -> None:
    with pytest.raises(TensorError) as caught:
        feed(make({"x": np.array(np.nan, F32)}))
    assert caught.value.members == {"tensor": "x", "index": []}


def test_across_the_blocks_of_a_large_file(tmp_path: Path) -> None:
    values = np.zeros(600_000, F32)
    path = tmp_path / "large"
    for at in (0, 262_142, 262_143, 262_144, 599_999):  # a block is a mebibyte; the header shifts its border
        values[:] = 0
        values[at] = np.nan
        write_file(path, {"x": values})
        with pytest.raises(TensorError) as caught:
            check_file(path)
        assert caught.value.members["index"] == [at]


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


def test_a_header_of_any_order_and_with_spaces_is_sound(make: Any) -> None:
    data = make({"a": ARRAYS["a"], "n": ARRAYS["n"]})
    tree = json.loads(data[8 : 8 + header_length(data)])
    body = data[8 + header_length(data) :]
    turned = raw(json.dumps(dict(reversed(tree.items()))).encode() + b" " * 4096, body)
    assert list(feed(turned).tensors) == ["a", "n"]  # by place in the file


def test_more_than_the_header_does_no_harm(make: Any) -> None:
    data = make({"a": ARRAYS["a"]})
    header = parse_header(data)
    assert header == parse_header(data[: 8 + header_length(data)])
    assert (header.data_start, header.data_bytes) == (8 + header_length(data), 24)


@pytest.mark.parametrize(
    ("text", "names"),
    [('["a", "n"]', {"a", "n"}), ("[]", set()), ("{", set()), ('{"a": 1}', set()), ('["a", 3]', {"a"}), (None, set())],
)
def test_buffers_are_named_in_the_metadata(make: Any, text: str | None, names: set[str]) -> None:
    data = make({"a": ARRAYS["a"]}, {} if text is None else {"potstill.buffers": text})
    assert parse_header(data).buffers == names


def test_batch_norms_buffers_are_known_by_their_names(make: Any) -> None:
    """A file that somebody else wrote does not say which tensors are buffers."""
    value = ARRAYS["a"]
    names = {"bn.running_mean": value, "running_var": value, "a.b.num_batches_tracked": np.array(3), "mean": value}
    assert parse_header(make(names)).buffers == {"bn.running_mean", "running_var", "a.b.num_batches_tracked"}


# ----------------------------------------------------------------------------------------------------------- compare
def test_the_same_tensors_in_another_order_match(make: Any) -> None:
    one = parse_header(make({"a": ARRAYS["a"], "n": ARRAYS["n"]}))
    two = parse_header(make({"n": ARRAYS["n"], "a": ARRAYS["a"]}, {"k": "v"}))
    compare(one, two)


def test_every_difference_is_named(make: Any) -> None:
    wanted = parse_header(make({"a": ARRAYS["a"], "b": ARRAYS["a"], "c": ARRAYS["n"]}))
    given = parse_header(make({"a": ARRAYS["a"].reshape(3, 2), "c": np.array(3, np.int32), "d": ARRAYS["a"]}))
    with pytest.raises(TensorError) as caught:
        compare(given, wanted)
    members = caught.value.members
    assert (members["missing"], members["unknown"], members["mismatched"]) == (["b"], ["d"], ["a", "c"])
    assert members["counts"] == {"missing": 1, "unknown": 1, "mismatched": 2}
    assert (members["tensor"], members["expected"]["shape"], members["actual"]["shape"]) == ("a", [2, 3], [3, 2])
    assert "1 more differ" in caught.value.detail


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model."])
def test_a_wrappers_prefix_is_named_with_its_remedy(make: Any, prefix: str) -> None:
    wanted = parse_header(make({"a": ARRAYS["a"], "n": ARRAYS["n"]}))
    given = parse_header(make({prefix + "a": ARRAYS["a"], prefix + "n": ARRAYS["n"]}))
    with pytest.raises(TensorError, match="strip it"):
        compare(given, wanted)
    with pytest.raises(TensorError) as caught:
        compare(parse_header(make({prefix + "zzz": ARRAYS["a"]})), wanted)
    assert "strip it" not in caught.value.detail


# --------------------------------------------------------------------------------------------------- files in blocks
def test_blocks_are_read_in_place(make: Any, tmp_path: Path) -> None:
    make({"first": np.zeros(5, F32), "x": np.arange(100, dtype=F32)})
    with TensorFile(tmp_path / "made.safetensors") as file:
        room = np.full(10, -1, F32)
        block = file.read_block("x", 90, 7, room)
        np.testing.assert_array_equal(room, [90, 91, 92, 93, 94, 95, 96, -1, -1, -1])
        assert np.shares_memory(block, room)
        assert file.read_block("x", 100, 0).size == 0
        for start, count in ((-1, 2), (99, 2), (101, 0)):
            with pytest.raises(IndexError):
                file.read_block("x", start, count)
        with pytest.raises(KeyError):
            file.read("nothing")
        file.close()
        file.close()


def test_a_file_that_shrinks_while_it_is_open_is_an_error_and_no_crash(make: Any, tmp_path: Path) -> None:
    path = tmp_path / "made.safetensors"
    data = make({"x": np.arange(100, dtype=F32)})
    with TensorFile(path) as file:
        path.write_bytes(data[:-40])
        with pytest.raises(TensorError, match="ended inside tensor 'x'"):
            file.read("x")


def test_a_writer_takes_pieces_in_order_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "pieces"
    with TensorWriter(path, {"a": ("F32", (2, 3)), "e": ("F32", (0,)), "b": ("I64", ())}) as writer:
        with pytest.raises(ValueError, match="out of turn"):
            writer.write("b", np.int64(1))
        writer.write("a", np.arange(4, dtype=F32))
        with pytest.raises(ValueError, match="announced was"):
            writer.write("a", np.arange(2, dtype=np.float64))
        with pytest.raises(ValueError, match="longer than announced"):
            writer.write("a", np.arange(3, dtype=F32))
        writer.write("a", np.arange(4, 6, dtype=F32))
        writer.write("e", np.zeros(0, F32))
        writer.write("b", np.int64(9))
    with TensorFile(path) as file:
        np.testing.assert_array_equal(file.read("a"), np.arange(6).reshape(2, 3))
        assert file.read("b") == 9
    with pytest.raises(ValueError, match="no values were written for"), TensorWriter(path, {"a": ("F32", (2,))}):
        pass


def test_dtypes_have_one_name_each() -> None:
    assert {dtype_name(np.zeros(1, dtype)) for dtype in DTYPES.values()} == set(DTYPES)
    assert dtype_name(np.zeros(1, ">f4")) == "F32"
    for other in (np.complex64, np.uint64, "U3", object):
        with pytest.raises(TensorError, match="not supported"):
            dtype_name(np.zeros(1, other))


def test_buffers_are_read_once_and_from_any_text() -> None:
    """They are asked for tensor by tensor; the text of an imported file may be anything."""
    info = TensorInfo("F32", (1,), 0, 4)
    header = Header({"a": info, "b": info}, {BUFFERS_KEY: '["a"]'})
    assert header.buffers == {"a"} and header.buffers is header.buffers
    assert Header({"a": info}, {BUFFERS_KEY: "[" * 100_000}).buffers == frozenset()
