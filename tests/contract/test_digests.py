"""Digests of values, made before a file is written: a writer that stores another order is found out."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch

from contract.nn import codec
from contract.tensors import DIGESTS_KEY, StreamCheck, TensorError, TensorFile, check_file, write_file

MATRIX = np.arange(12, dtype=np.float32).reshape(3, 4)


def digests(arrays: dict[str, np.ndarray]) -> dict[str, str]:
    return {DIGESTS_KEY: codec.digests({name: torch.from_numpy(array.copy()) for name, array in arrays.items()})}


@pytest.mark.parametrize("layout", [np.asfortranarray, lambda a: a.T.copy().T, lambda a: np.repeat(a, 2, 1)[:, ::2]])
def test_every_layout_arrives_as_it_was_meant(tmp_path: Path, layout: object) -> None:
    """Our writer goes by values; the file says so itself."""
    array = layout(MATRIX)  # type: ignore[operator]
    path = tmp_path / "file"
    write_file(path, {"w": array}, digests({"w": MATRIX}))
    check_file(path)
    with TensorFile(path) as file:
        assert file.read("w").tobytes() == MATRIX.tobytes()


def test_a_writer_that_scrambled_a_tensor_is_found_out_by_name(tmp_path: Path) -> None:
    """What safetensors 0.8.0 does with a Fortran-ordered array: its memory under a C-order shape."""
    path = tmp_path / "file"
    scrambled = np.frombuffer(np.asfortranarray(MATRIX).tobytes("A"), np.float32).reshape(3, 4)
    write_file(path, {"a": MATRIX, "w": scrambled}, digests({"a": MATRIX, "w": MATRIX}))
    with pytest.raises(TensorError, match="tensor 'w' has other values") as caught:
        check_file(path)
    assert (caught.value.code, caught.value.members["tensor"]) == ("values", "w")


@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_pieces_of_any_size(tmp_path: Path, step: int) -> None:
    state = {
        "f": torch.randn(5, 3).t(),
        "h": torch.randn(4).to(torch.bfloat16),
        "count": torch.tensor(7),
        "none": torch.zeros(0, 3),
        "flags": torch.tensor([True, False]),
    }
    path = tmp_path / "file"
    codec.save_state(state, path, {DIGESTS_KEY: codec.digests(state)})
    data = path.read_bytes()
    check = StreamCheck(total_size=len(data))
    for at in range(0, len(data), step):
        check.feed(data[at : at + step])
    check.finish()
    assert ml_dtypes.bfloat16(1) == 1
    spoilt = bytearray(data)
    spoilt[-1] ^= 1
    with pytest.raises(TensorError, match="'flags'"):
        StreamCheck(total_size=len(data)).feed(bytes(spoilt))


@pytest.mark.parametrize(
    "text", ["{", "[]", "1", '{"w": 1}', '{"w": "00"}', '{"x": "' + "0" * 64 + '"}', "[" * 50_000, '{"w": null}']
)
def test_digests_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file"
    write_file(path, {"w": MATRIX}, {DIGESTS_KEY: text})
    with pytest.raises(TensorError) as caught:
        check_file(path)
    assert caught.value.code == "container"
    assert DIGESTS_KEY in caught.value.detail


def test_some_tensors_may_be_digested(tmp_path: Path) -> None:
    path = tmp_path / "file"
    only = json.dumps({"w": json.loads(digests({"w": MATRIX})[DIGESTS_KEY])["w"]})
    write_file(path, {"v": MATRIX[0], "w": MATRIX}, {DIGESTS_KEY: only})
    check_file(path)
