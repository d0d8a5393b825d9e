"""A: the container. Files that are cut, lie about their layout, hold what nobody reads, or would run code."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from contract.nn.codec import save_state
from contract.tensors import DTYPES, TensorFile, dtype_name
from tests.cases.conftest import NETWORK, Invite, Party
from tests.cases.wire import Answer, put
from tests.conformance import files
from tests.conformance.grid import CASES
from tools.deployment import ROOT, Deployment

SCHEMA = {name: (dtype_name(array), tuple(array.shape)) for name, array in NETWORK.items()}
MAKERS = {case.name: case for case in CASES}


@pytest.fixture
def fed(party: Invite) -> Party:
    return party("a", "b")


def send(fed: Party, name: str) -> Answer:
    """Send a file of the conformance grid; whatever is refused leaves nothing behind, and a good one still counts."""
    case = MAKERS[name]
    body = case.make(SCHEMA, {"num_samples": "10", "base_model": fed.round().base_models["main"]})
    before, begun = _files(fed), time.monotonic()
    answer = put(
        fed.url(), fed.tokens["a"], body, **{key.replace("-", "_"): value for key, value in case.headers.items()}
    )
    assert time.monotonic() - begun < 20, "a verdict takes no time"
    if answer.status != 201:
        assert _files(fed) == before
        assert fed.round().answered == 0
    return answer


def _files(fed: Party) -> set[Path]:
    return {path for path in (fed.deployment.home / "blobs").rglob("*") if path.is_file()}


def test_a01_damaged_containers(fed: Party) -> None:
    """What is cut says how much was there and how much was due; what is no model at all is called by its name."""
    for name in ("cut_in_half", "one_byte_short", "cut_in_the_header", "empty_body", "seven_bytes"):
        answer = send(fed, name)
        assert answer.status == 422, (name, answer)
        assert any(letter.isdigit() for letter in answer.problem["detail"]), answer.problem
        if name in ("cut_in_half", "one_byte_short"):
            assert answer.problem["expected"] > answer.problem["actual"]
    assert "Git LFS pointer" in send(fed, "lfs_pointer").problem["detail"]
    assert "HTML" in send(fed, "html_page").problem["detail"]
    assert fed.push("a").status == 201


def test_a02_size_fields_ask_for_nothing(fed: Party, live: Deployment) -> None:
    """A header of 2^64 bytes, 90 MB or 200,000 brackets costs no memory, and the next good upload works."""
    api = psutil.Process(live.pid("api"))
    before = api.memory_info().rss
    lies = ("length_of_all_ones", "length_of_90_mb", "length_too_short", "length_big_endian")
    for name in (*lies, "header_not_utf8", "header_is_a_list", "header_is_noise", "header_nested_deeply"):
        assert send(fed, name).status == 422, name
    assert api.memory_info().rss - before < 20 * 2**20
    assert "Traceback" not in live.log("api")
    assert fed.push("a").status == 201


def test_a03_one_reader_for_checking_and_averaging(fed: Party) -> None:
    """A name twice is refused by name; the packages read headers in one place only."""
    answer = send(fed, "a_name_twice")
    assert answer.status == 422 and answer.problem["tensor"] in SCHEMA
    for package in ("service", "worker", "client_sdk"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text()
            assert "safe_open" not in text and "safetensors.numpy" not in text and "safetensors.torch" not in text, path
            assert "data_offsets" not in text, path


def test_a04_layouts_that_lie(fed: Party, tmp_path: Path) -> None:
    """Shared bytes, holes, bytes of nobody: refused with the tensor. The SDK writes tied tensors out one by one."""
    named = ("shared_bytes", "offsets_that_do_not_fit_the_shape", "offsets_missing")
    for name in (*named, "hole", "bytes_behind", "offsets_behind_the_end"):
        answer = send(fed, name)
        assert answer.status == 422, name
        if name in named:
            assert answer.problem["tensor"] in SCHEMA
    weight = torch.arange(6.0)
    save_state({"a": weight, "b": weight}, tmp_path / "tied.safetensors")
    with TensorFile(tmp_path / "tied.safetensors") as file:
        assert (file.read("a") == file.read("b")).all()


def test_a09_values_survive_the_writer(fed: Party, tmp_path: Path) -> None:
    """Transposed, strided and Fortran-ordered states arrive as they were meant, and their digests say so."""
    values = np.random.default_rng(9).standard_normal((10, 16)).astype(np.float32)
    odd = {
        "fortran": np.asfortranarray(values[:, :8]),
        "transposed": np.ascontiguousarray(values[:, :8].T).T,
        "strided": values[:, ::2],
    }
    for name, array in odd.items():
        state = {key: torch.from_numpy(np.ascontiguousarray(each)) for key, each in NETWORK.items()}
        state["fc.weight"] = torch.from_numpy(array) if array.flags.c_contiguous else _as_torch(array)
        save_state(state, tmp_path / f"{name}.safetensors")
        with TensorFile(tmp_path / f"{name}.safetensors") as file:
            assert (np.asarray(file.read("fc.weight")) == array).all(), name
    assert fed.push("a", NETWORK | {"fc.weight": odd["fortran"]}).status == 201
    assert fed.push("b", NETWORK | {"fc.weight": odd["transposed"]}).status == 201


def _as_torch(array: np.ndarray) -> torch.Tensor:
    """Return the same view as torch sees it: strides and all."""
    return torch.from_numpy(array.T).T if array.T.flags.c_contiguous else torch.from_numpy(array.copy(order="K"))


def test_a11_dtypes_that_are_not_wanted(fed: Party) -> None:
    """BF16, FP8, F64 and what does not exist: refused with tensor, what it is and what is wanted."""
    dtypes = [case for case in CASES if case.group == "dtypes"]
    assert len(dtypes) >= 3
    for case in dtypes:
        answer = send(fed, case.name)
        assert answer.status == 422, (case.name, answer)
        assert answer.problem["tensor"]
    for dtype in ("BF16", "F8_E4M3", "F64"):
        header, data = files.head(files.entries(SCHEMA), {"num_samples": "1", "base_model": "x"})
        header["fc.weight"]["dtype"] = dtype
        answer = put(fed.url(), fed.tokens["a"], files.raw(header, data))
        assert answer.status == 422 and "fc.weight" in answer.problem["detail"] and dtype in answer.problem["detail"]
    assert "F32" in DTYPES


def test_a16_no_pickle_is_ever_read(fed: Party, live: Deployment) -> None:
    """Pickles in every disguise are refused by name; their canary appears nowhere; tasks are JSON."""
    for name in ("pickle_in_a_zip", "pickle_bare", "numpy_archive"):
        answer = send(fed, name)
        assert answer.status in (415, 422) and "safetensors" in answer.problem["detail"]
    assert not [path for root in (ROOT, live.home) for path in root.glob("**/PICKLE_WAS_EXECUTED")]
    code = "from worker.app import app; print(app.conf.task_serializer, *app.conf.accept_content)"
    done = subprocess.run([sys.executable, "-c", code], env=live.env, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.split() == ["json", "json"], done.stderr
