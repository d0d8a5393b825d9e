import hashlib
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from contract.tensors import TensorError, TensorFile
from contract.updates import BASE_KEY, FEATURES_KEY
from contract.whole import WholeFile, copy_tensors, digest_of, part_files, require_base

ARRAYS = {
    "body": np.arange(6, dtype=np.float32).reshape(2, 3),
    "count": np.array(7),
    "head": np.array([0.5, -1.5], dtype=np.float16),
    "tail": np.array([], dtype=np.float32),
}


@pytest.fixture
def parted(tmp_path: Path) -> tuple[Path, Path]:
    whole = tmp_path / "whole.safetensors"
    save_file(ARRAYS, whole, {FEATURES_KEY: "3"})
    base, moving = tmp_path / "base.safetensors", tmp_path / "moving.safetensors"
    part_files(whole, ["head"], base, moving)
    return moving, base


def join(moving: Path, base: Path, target: Path) -> None:
    with WholeFile(moving, base) as whole:
        copy_tensors(whole, whole.header.tensors, target, whole.header.metadata)


def test_both_files_hold_their_tensors_and_the_moving_one_names_its_base(parted: tuple[Path, Path]) -> None:
    moving, base = parted
    assert set(load_file(moving)) == {"head"}
    assert set(load_file(base)) == {"body", "count", "tail"}
    with TensorFile(moving) as file:
        digest = f"sha256-{hashlib.sha256(base.read_bytes()).hexdigest()}"
        assert file.header.metadata == {FEATURES_KEY: "3", BASE_KEY: digest}


def test_joined_they_are_the_network_again(parted: tuple[Path, Path], tmp_path: Path) -> None:
    target = tmp_path / "again.safetensors"
    join(*parted, target)
    found = load_file(target)
    assert set(found) == set(ARRAYS)
    for name, values in ARRAYS.items():
        assert found[name].dtype == values.dtype
        np.testing.assert_array_equal(found[name], values)
    with TensorFile(target) as file:
        assert file.names[-1] == "head"  # the base's come first
        assert BASE_KEY not in file.header.metadata


def test_the_header_is_that_of_the_file_that_both_make(parted: tuple[Path, Path], tmp_path: Path) -> None:
    join(*parted, tmp_path / "again.safetensors")
    with WholeFile(*parted) as whole, TensorFile(tmp_path / "again.safetensors") as file:
        assert whole.header == file.header
        assert whole.header.total_size == file.path.stat().st_size


def test_a_part_is_no_network(parted: tuple[Path, Path]) -> None:
    with pytest.raises(TensorError, match="1 trained tensors of a network whose base is sha256-.* download the model"):
        WholeFile(parted[0])


def test_a_part_does_not_go_with_another_base(parted: tuple[Path, Path], tmp_path: Path) -> None:
    moving, base = parted
    other = tmp_path / "other.safetensors"
    save_file({name: np.asarray(values + 1) for name, values in load_file(base).items()}, other)
    with (
        TensorFile(moving) as file,
        pytest.raises(TensorError, match=f"is of the base {digest_of(base)}, and this is {digest_of(other)}"),
    ):
        require_base(file.header, digest_of(other))


def test_files_that_share_a_tensor_are_of_no_one_network(parted: tuple[Path, Path]) -> None:
    with pytest.raises(TensorError, match="tensor 'head' is in the base, too"):
        WholeFile(parted[0], parted[0])
