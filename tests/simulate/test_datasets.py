import gzip
import io
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from client_sdk.errors import DatasetError
from contract.tokenizer import HashingTokenizer
from potstill.simulate import datasets
from potstill.simulate.config import SimulationError


def write_sheets(path: Path, images: np.ndarray, labels: np.ndarray, columns: int, each: int) -> None:
    """Pack images [N, C, H, W] the way that the reader documents."""
    pillow = pytest.importorskip("PIL.Image")
    count, channels, height, width = images.shape
    tensors: dict[str, np.ndarray] = {
        "labels": labels.astype(np.uint8),
        "official_index": np.arange(count, dtype=np.uint16),
    }
    for number, start in enumerate(range(0, count, each)):
        rows = -(-min(each, count - start) // columns)
        sheet = np.zeros((rows * height, columns * width, channels), np.uint8)
        for at, image in enumerate(images[start : start + each]):
            y, x = divmod(at, columns)
            sheet[y * height : (y + 1) * height, x * width : (x + 1) * width] = image.transpose(1, 2, 0)
        packed = io.BytesIO()
        pillow.fromarray(sheet[..., 0] if channels == 1 else sheet).save(packed, "WEBP", lossless=True, exact=True)
        tensors[f"sheet_{number:04}"] = np.frombuffer(packed.getvalue(), np.uint8).copy()
    meta: dict[str, object] = {
        "format": "webp-sheets/1",
        "n": count,
        "channels": channels,
        "height": height,
        "width": width,
    }
    meta |= {"height": height, "width": width, "cols": columns, "per_sheet": each}
    save_file(tensors, path, metadata={key: str(value) for key, value in meta.items()})


@pytest.mark.parametrize("channels", [1, 3])
def test_images_on_sheets_come_back_in_their_order(channels: int, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (23, channels, 5, 4), dtype=np.uint8)
    labels = random.integers(0, 10, 23)
    write_sheets(tmp_path / "packed.safetensors", images, labels, columns=3, each=10)
    read = datasets.read_images(tmp_path / "packed.safetensors")
    np.testing.assert_array_equal(np.round(read.inputs * 255), images)
    np.testing.assert_array_equal(read.labels, labels)
    assert read.inputs.dtype == np.float32


def test_plain_images_are_read_too(tmp_path: Path) -> None:
    images = np.arange(2 * 3 * 4 * 4, dtype=np.uint8).reshape(2, 3, 4, 4)
    save_file({"images": images, "labels": np.array([1, 0], np.uint8)}, tmp_path / "plain.safetensors")
    read = datasets.read_images(tmp_path / "plain.safetensors")
    np.testing.assert_array_equal(np.round(read.inputs * 255), images)
    assert read.labels.tolist() == [1, 0]


def test_damaged_images_are_refused_by_file(tmp_path: Path) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(b"no tensors")
    with pytest.raises(SimulationError, match="bad.safetensors: is no file of packed images"):
        datasets.read_images(path)
    save_file({"labels": np.zeros(3, np.uint8), "images": np.zeros((2, 1, 4, 4), np.uint8)}, path)
    with pytest.raises(SimulationError, match="for 3 labels"):
        datasets.read_images(path)


def write_texts(path: Path, rows: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows)


def test_texts_become_the_contracts_token_ids(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"text": "A good film.", "label": 1}, {"text": "Awful", "label": 0}]
    write_texts(tmp_path / "sst2" / "train.jsonl.gz", rows)
    write_texts(tmp_path / "sst2" / "validation.jsonl.gz", rows[:1])
    loaded = datasets.load("sst2", tmp_path)
    expected = HashingTokenizer(datasets.VOCABULARY, datasets.WORDS).encode_all(str(row["text"]) for row in rows)
    np.testing.assert_array_equal(loaded.train.inputs, expected)
    assert loaded.num_classes == 2 and loaded.test is not None and len(loaded.test) == 1


def test_a_bad_line_of_text_is_named(tmp_path: Path) -> None:
    write_texts(tmp_path / "texts.gz", [{"text": "fine", "label": 0}, {"label": 1}])
    with pytest.raises(SimulationError, match="line 2: KeyError"):
        datasets.read_texts(tmp_path / "texts.gz")


def test_a_folder_that_is_missing_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(datasets.ENVIRONMENT, raising=False)
    with pytest.raises(SimulationError, match="--data-dir or POTSTILL_DATA_DIR"):
        datasets.load("mnist")
    monkeypatch.setenv(datasets.ENVIRONMENT, str(tmp_path))
    with pytest.raises(SimulationError, match="mnist/train-60k.safetensors, which is not there"):
        datasets.load("mnist")


def test_unknown_names_and_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SimulationError, match="neither one of digits, digit-pairs"):
        datasets.load("imagenet")
    with pytest.raises(SimulationError, match="there is no file"):
        datasets.load(str(tmp_path / "none.npz"))
    np.savez(tmp_path / "one.npz", x=np.zeros((4, 3), np.float32), y=np.zeros(4, np.int64))
    with pytest.raises(SimulationError, match="two classes"):
        datasets.load(str(tmp_path / "one.npz"))
    np.savez(tmp_path / "bytes.npz", x=np.zeros((4, 3), np.uint8), y=np.arange(4))
    with pytest.raises(SimulationError, match="x / 255"):
        datasets.load(str(tmp_path / "bytes.npz"))
    np.savez(tmp_path / "two.npz", ids=np.zeros((4, 3)), mask=np.ones((4, 3)), labels=np.arange(4))
    with pytest.raises(SimulationError, match="ids, mask are several inputs, .*write one array `inputs`"):
        datasets.load(str(tmp_path / "two.npz"))
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    with pytest.raises(DatasetError, match="it needs 'inputs' and 'labels'"):
        datasets.load(str(tmp_path / "other.npz"))


def test_files_of_ones_own(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=np.ones((6, 3), np.float64), y=np.arange(6) % 3)
    loaded = datasets.load(str(tmp_path / "mine.npz"))
    assert (loaded.name, loaded.num_classes, loaded.test, loaded.server) == ("mine", 3, None, None)
    assert loaded.train.inputs.dtype == np.float32


def test_digits_are_real_images() -> None:
    loaded = datasets.load("digits")
    assert loaded.train.inputs.shape == (1797, 1, 8, 8)
    assert loaded.num_classes == 10 and 0 <= loaded.train.inputs.min() < loaded.train.inputs.max() == 1


def test_the_servers_own_file_needs_no_labels(tmp_path: Path) -> None:
    inputs = np.random.default_rng(0).random((5, 6), dtype=np.float32)
    np.savez(tmp_path / "one.npz", x=inputs)
    save_file({"inputs": inputs}, tmp_path / "two.safetensors")
    for name in ("one.npz", "two.safetensors"):
        np.testing.assert_array_equal(datasets.server_inputs(str(tmp_path / name)), inputs)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"labels": np.zeros(3)}, "needs an array `inputs`"),
        ({"x": np.zeros((3, 2), np.uint8)}, "inputs are bytes"),
        ({"x": np.full((3, 2), np.nan)}, "finite numbers"),
        ({"x": np.zeros((0, 2))}, "a row a sample"),
    ],
)
def test_a_server_file_of_another_form_is_refused(arrays: dict[str, np.ndarray], message: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(SimulationError, match=f"server_data: .*{message}"):
        datasets.server_inputs(str(tmp_path / "other.npz"))


def test_a_set_that_only_the_server_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(datasets.ENVIRONMENT, raising=False)
    with pytest.raises(SimulationError, match="server_data: cifar100 is not part of potstill"):
        datasets.server_inputs("cifar100")
    with pytest.raises(SimulationError, match="server_data: 'cifar1000' is neither"):
        datasets.server_inputs("cifar1000")
    with pytest.raises(SimulationError, match="server_data: there is no file"):
        datasets.server_inputs(str(tmp_path / "none.npz"))
    folder = tmp_path / "cifar100-lite"
    folder.mkdir()
    images = np.full((4, 3, 32, 32), 255, np.uint8)
    save_file({"images": images, "labels": np.zeros(4, np.uint8)}, folder / "unlabeled-10k.safetensors")
    assert datasets.server_inputs("cifar100", tmp_path).max() == 1


@pytest.mark.parametrize("users", [np.arange(6) % 2, np.array(["ann", "bob"] * 3)])
def test_a_file_says_whose_its_samples_are(users: np.ndarray, tmp_path: Path) -> None:
    inputs, labels = np.zeros((6, 2), np.float32), np.arange(6) % 3
    np.savez(tmp_path / "mine.npz", x=inputs, y=labels, users=users)
    found = datasets.load(str(tmp_path / "mine.npz")).train
    assert found.users is not None and found.users.tolist() == users.tolist()
    assert found.take([1, 4]).users.tolist() == users[[1, 4]].tolist()  # type: ignore[union-attr]
    np.savez(tmp_path / "mine.npz", x=inputs, y=labels)
    assert datasets.load(str(tmp_path / "mine.npz")).train.users is None


@pytest.mark.parametrize("users", [np.arange(5), np.zeros((6, 1), np.int64), np.zeros(6)])
def test_users_of_another_form_are_refused(users: np.ndarray, tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=np.zeros((6, 2), np.float32), y=np.arange(6) % 3, users=users)
    with pytest.raises(SimulationError, match=r"users are .*; give a name or a whole number for each of the 6 samples"):
        datasets.load(str(tmp_path / "mine.npz"))
