"""The one reader of safetensors files: against the library, values, comparison, files in blocks."""

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
    synced_later,
    write_file,
)
from tests.contract.conftest import Write

from .tensor_files import ARRAYS, F32, feed


# --------------------------------------------------------------------------------------------- writing and reading
def test_what_is_written_is_read_back_bit_for_bit(make: Write, tmp_path: Path) -> None:
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
            assert read.flags.owndata or (read.base is not None and read.base.flags.owndata)
    assert make(ARRAYS, {"num_samples": "3"}) == data
    assert (8 + header_length(data)) % 8 == 0


def test_the_library_reads_what_we_write_and_we_read_what_it_writes(make: Write, tmp_path: Path) -> None:
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
def test_values_are_written_in_c_order_whatever_the_layout(make: Write, tmp_path: Path, odd: Any) -> None:
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
    make: Write, arrays: dict[str, Any], metadata: dict[str, str], size: int
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
def test_one_changed_byte_is_either_refused_or_another_sound_file(make: Write, at: int, byte: int, size: int) -> None:
    data = bytearray(make({"a": ARRAYS["a"], "n": ARRAYS["n"]}, {"k": "v"}))
    data[at % len(data)] = byte
    try:
        header = feed(bytes(data), size=size)
    except TensorError:
        return
    assert header.total_size == len(data)
    assert feed(bytes(data), size=0).tensors == header.tensors


def test_a_file_cut_at_any_byte_is_refused_alike_by_stream_and_by_file(make: Write, tmp_path: Path) -> None:
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


def test_an_announced_size_that_does_not_fit_is_known_with_the_header(make: Write) -> None:
    data = make({"a": ARRAYS["a"]})
    check = StreamCheck(None, len(data) + 5)
    with pytest.raises(TensorError) as caught:
        check.feed(data[: 8 + header_length(data)])
    assert (caught.value.members["expected"], caught.value.members["actual"]) == (len(data), len(data) + 5)


def test_the_header_is_told_once(make: Write) -> None:
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
    make: Write, size: int, dtype: Any, bad: float, at: int
) -> None:
    values = np.ones((2, 3, 4), dtype)
    values.reshape(-1)[at] = bad
    data = make({"before": np.ones(3, F32), "x": values, "after": np.ones(3, F32)})
    with pytest.raises(TensorError) as caught:
        feed(data, size=size)
    assert caught.value.code == "values"
    assert caught.value.members == {"tensor": "x", "index": list(np.unravel_index(at, (2, 3, 4)))}


def test_large_finite_values_whose_sum_overflows_are_taken(make: Write) -> None:
    for dtype in (np.float16, np.float32, np.float64, ml_dtypes.bfloat16):
        largest = ml_dtypes.finfo(dtype).max
        values = np.full(64, largest, dtype)
        assert feed(make({"x": values, "y": -values})).tensors["x"].numel == 64


@pytest.mark.parametrize("size", [0, 1, 4, 6])
def test_a_negative_running_variance_is_refused_and_other_negatives_are_not(make: Write, size: int) -> None:
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
def test_a_bool_is_zero_or_one(make: Write, size: int) -> None:
    data = make({"flag": np.array([True, False, True])})
    feed(data, size=size)
    with pytest.raises(TensorError, match="neither 0 nor 1"):
        feed(data[:-1] + b"\x02", size=size)


def test_a_scalar_that_is_not_finite_has_an_empty_index(make: Write) -> None:
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


# ----------------------------------------------------------------------------------------------------------- compare
def test_the_same_tensors_in_another_order_match(make: Write) -> None:
    one = parse_header(make({"a": ARRAYS["a"], "n": ARRAYS["n"]}))
    two = parse_header(make({"n": ARRAYS["n"], "a": ARRAYS["a"]}, {"k": "v"}))
    compare(one, two)


def test_every_difference_is_named(make: Write) -> None:
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
def test_a_wrappers_prefix_is_named_with_its_remedy(make: Write, prefix: str) -> None:
    wanted = parse_header(make({"a": ARRAYS["a"], "n": ARRAYS["n"]}))
    given = parse_header(make({prefix + "a": ARRAYS["a"], prefix + "n": ARRAYS["n"]}))
    with pytest.raises(TensorError, match="strip it"):
        compare(given, wanted)
    with pytest.raises(TensorError) as caught:
        compare(parse_header(make({prefix + "zzz": ARRAYS["a"]})), wanted)
    assert "strip it" not in caught.value.detail


# --------------------------------------------------------------------------------------------------- files in blocks
def test_blocks_are_read_in_place(make: Write, tmp_path: Path) -> None:
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


def test_a_file_that_shrinks_while_it_is_open_is_an_error_and_no_crash(make: Write, tmp_path: Path) -> None:
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
            writer.write("b", np.asarray(1))
        writer.write("a", np.arange(4, dtype=F32))
        with pytest.raises(ValueError, match="announced was"):
            writer.write("a", np.arange(2, dtype=np.float64))
        with pytest.raises(ValueError, match="longer than announced"):
            writer.write("a", np.arange(3, dtype=F32))
        writer.write("a", np.arange(4, 6, dtype=F32))
        writer.write("e", np.zeros(0, F32))
        writer.write("b", np.asarray(9))
    with TensorFile(path) as file:
        np.testing.assert_array_equal(file.read("a"), np.arange(6).reshape(2, 3))
        assert file.read("b") == 9
    with pytest.raises(ValueError, match="no values were written for"), TensorWriter(path, {"a": ("F32", (2,))}):
        pass


def test_whoever_takes_a_file_may_put_it_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr("contract.tensors.files.os.fsync", synced.append)
    with synced_later():
        write_file(tmp_path / "taken", {"a": np.arange(3, dtype=F32)})
    assert synced == []
    write_file(tmp_path / "kept", {"a": np.arange(3, dtype=F32)})
    assert len(synced) == 1
    assert (tmp_path / "taken").read_bytes() == (tmp_path / "kept").read_bytes()


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
