"""More updates than files may be open: rules that read them side by side make the same bytes."""

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.tensors import TensorError, TensorFile, write_file
from worker.parts import blocks, posterior_files, robust
from worker.parts.blocks import Source

CLIENTS = 150
BODY = """
import resource, sys
from pathlib import Path
from typing import Any
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from tests.worker.parts.test_many_files import made
print(made(Path(sys.argv[1]), Path(sys.argv[2])))
"""


def update(number: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(number)
    return {
        "w": rng.normal(size=(3, 700)).astype(np.float32),
        "bn.running_var": rng.random(5, dtype=np.float32) + np.float32(0.1),
        "bn.num_batches_tracked": np.array(number, np.int64),
    }


def made(folder: Path, out: Path) -> dict[str, str]:
    """Run every rule that reads files side by side; return what each made, by digest."""
    out.mkdir()
    sources = [Source(f"c{number:03}", folder / str(number), 1 + number % 3) for number in range(CLIENTS)]
    seeds: dict[str, Any] = {"seed": 1, "round_index": 2, "member": 3}
    robust.median_files(sources, out / "median")
    robust.trimmed_mean_files(sources, out / "trimmed")
    robust.krum_files(sources, out / "krum", byzantine=3, keep=5)
    robust.clipped_mean_files(sources, folder / "0", out / "clipped", 2.0)
    posterior_files.posterior_files(sources, out / "mean", out / "var", out / "floor")
    posterior_files.dirichlet_sample_files(sources, out / "dirichlet", sample_buffers=False, **seeds)
    posterior_files.swag_sample_files(sources, out / "swag", **seeds)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(out.iterdir())}


@pytest.mark.skipif(sys.platform == "win32", reason="no RLIMIT_NOFILE")
def test_a_low_limit_of_open_files_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "updates"
    folder.mkdir()
    for number in range(CLIENTS):
        write_file(folder / str(number), update(number))
    few = subprocess.run(
        [sys.executable, "-c", BODY, str(folder), str(tmp_path / "few")], capture_output=True, text=True, check=False
    )
    assert few.returncode == 0, few.stderr[-2000:]
    monkeypatch.setattr(blocks, "MOST_OPEN", CLIENTS + 1)
    everything = made(folder, tmp_path / "all")
    assert set(everything) == {"median", "trimmed", "krum", "clipped", "mean", "var", "floor", "dirichlet", "swag"}
    assert few.stdout.strip() == str(everything)


def test_a_file_that_rests_is_opened_again_and_must_be_the_same(tmp_path: Path) -> None:
    path = tmp_path / "model"
    write_file(path, update(1))
    with TensorFile(path) as file:
        before = file.read("w")
        file.rest()
        file.rest()
        assert (file.read("w") == before).all()
        file.rest()
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(TensorError, match="length changed"):
            file.read("w")
    with pytest.raises(OSError, match="descriptor"):
        file.read("w")
