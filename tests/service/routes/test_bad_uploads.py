"""Every bad upload: status, kind, the tensor or field at fault, a remedy; and afterwards no row and no file."""

import gzip
import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import ml_dtypes
import numpy as np
import pytest

from contract.wire.problems import KINDS, MEDIA_TYPE, TYPE_PREFIX
from tests.service.world import World


class Canary:
    """Unpickling this makes a folder in the reader's working directory."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.mkdir, (Path("PICKLE_WAS_EXECUTED"),)


class Kit:
    """The running round that every file is sent to."""

    def __init__(self, world: World):
        self.world, self.forge = world, world.forge
        self.fed = world.running(["a", "b"])
        self.url = f"/v1/rounds/{world.round(self.fed)['id']}/update"
        self.base = world.round(self.fed)["base_models"]["main"]

    def metadata(self, **changes: Any) -> dict[str, str]:
        values = {"num_samples": "10", "base_model": self.base, **changes}
        return {key: value for key, value in values.items() if value is not None}

    def good(self, **metadata: Any) -> bytes:
        return self.forge.pack(self.forge.arrays(1), self.metadata(**metadata))

    def edited(self, **changes: Any) -> bytes:
        """Return a file with some tensors replaced, added, or (None) left out; `__` in a name stands for a dot."""
        arrays = self.forge.arrays(1) | {name.replace("__", "."): value for name, value in changes.items()}
        return self.forge.pack({k: np.asarray(v) for k, v in arrays.items() if v is not None}, self.metadata())

    def poked(self, tensor: str, index: int, value: float) -> bytes:
        """Return a file with one value replaced."""
        arrays = self.forge.arrays(1)
        arrays[tensor].reshape(-1)[index] = value
        return self.forge.pack(arrays, self.metadata())

    def lying(self, change: Callable[[dict[str, Any]], None]) -> bytes:
        """Return a file whose header was changed."""
        header, data = self.forge.layout(self.forge.arrays(1), self.metadata())
        change(header)
        return self.forge.raw(header, data)


@pytest.fixture(scope="module")
def kit(shared: World) -> Kit:
    return Kit(shared)


def _zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"fc.bias": Canary()}, protocol=2))
    return buffer.getvalue()


def _npz() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, fc=np.zeros(3))
    return buffer.getvalue()


def _overlap(header: dict[str, Any]) -> None:
    header["bn.running_var"]["data_offsets"] = header["bn.running_mean"]["data_offsets"]


def _far(header: dict[str, Any]) -> None:
    header["fc.bias"]["data_offsets"] = [edge + 10**6 for edge in header["fc.bias"]["data_offsets"]]


def _twice(kit: Kit) -> bytes:
    header, data = kit.forge.layout(kit.forge.arrays(1), kit.metadata())
    entry = json.dumps({"dtype": "F32", "shape": [3], "data_offsets": [len(data), len(data) + 12]})
    return kit.forge.raw(json.dumps(header)[:-1].encode() + b',"fc.bias":' + entry.encode() + b"}", data + bytes(12))


def _f64(kit: Kit) -> bytes:
    arrays = kit.forge.arrays(1)
    return kit.forge.pack({k: v.astype("<f8") if v.dtype == "<f4" else v for k, v in arrays.items()}, kit.metadata())


def _prefixed(kit: Kit, prefix: str) -> bytes:
    return kit.forge.pack({prefix + k: v for k, v in kit.forge.arrays(1).items()}, kit.metadata())


CONTAINER: dict[str, tuple[Callable[[Kit], bytes], str]] = {
    "empty body": (lambda k: b"", "0 bytes"),
    "seven bytes": (lambda k: b"\x08" + bytes(6), "7 bytes"),
    "only the length": (lambda k: k.good()[:8], "ends inside its header"),
    "cut in the header": (lambda k: k.good()[:40], "ends inside its header"),
    "cut at the header's end": (lambda k: k.good()[: 8 + int.from_bytes(k.good()[:8], "little")], "cut short"),
    "cut in the middle": (lambda k: k.good()[:-100], "cut short"),
    "one byte short": (lambda k: k.good()[:-1], "cut short"),
    "sixteen bytes too many": (lambda k: k.good() + bytes(16), "belong to no tensor"),
    "length is 2**64-1": (lambda k: b"\xff" * 8 + k.good()[8:], "header claims"),
    "length is 90 MB": (lambda k: (90_000_000).to_bytes(8, "little") + k.good()[8:], "header claims"),
    "length too short": (lambda k: k.forge.raw({"a": {}}, length=4), "not JSON"),
    "length big-endian": (lambda k: k.good()[:8][::-1] + k.good()[8:], "header claims"),
    "header is an array": (lambda k: k.forge.raw(b'[{"name": "fc.bias"}]'), "does not start with"),
    "header is noise": (lambda k: k.forge.raw(bytes(range(32, 96)), bytes(64)), "does not start with"),
    "header is not UTF-8": (lambda k: k.forge.raw(b'{"\xff": {}}'), "UTF-8"),
    "header holds NaN": (lambda k: k.forge.raw(b'{"a": NaN}'), "NaN"),
    "deep nesting": (lambda k: k.forge.raw(b'{"__metadata__":' + b"[" * 20_000 + b"]" * 20_000 + b"}"), "deep"),
    "metadata is a number": (lambda k: k.forge.raw({"__metadata__": {"a": 1}}), "strings to strings"),
    "two names share bytes": (lambda k: k.lying(_overlap), "share bytes"),
    "a hole": (lambda k: k.lying(_far), "belong to no tensor"),
    "shape and offsets differ": (lambda k: k.lying(lambda h: h["fc.bias"].update(shape=[6])), "needs 24 bytes"),
    "no offsets": (lambda k: k.lying(lambda h: h["fc.bias"].pop("data_offsets")), "data_offsets"),
    "negative shape": (lambda k: k.lying(lambda h: h["fc.bias"].update(shape=[-3])), "whole numbers"),
    "huge shape": (lambda k: k.lying(lambda h: h["fc.bias"].update(shape=[2**62, 2**62])), "needs"),
    "a name twice": (_twice, "twice"),
    "a pickle": (lambda k: pickle.dumps({"a": Canary()}, protocol=2), "pickle"),
    "a new pickle": (lambda k: pickle.dumps({"a": Canary()}, protocol=5), "pickle"),
    "a torch.save zip": (lambda k: _zip(), "zip"),
    "an npz": (lambda k: _npz(), "zip"),
    "gzip": (lambda k: gzip.compress(k.good()), "gzip"),
    "HTML": (lambda k: b"<html><title>502 Bad Gateway</title></html>", "HTML"),
    "an LFS pointer": (lambda k: b"version https://git-lfs.github.com/spec/v1\noid sha256:4d\n", "LFS"),
    "JSON": (lambda k: b'{"weights": [1, 2, 3]}', "JSON"),
}

FLOAT = np.float32
TENSORS: dict[str, tuple[Callable[[Kit], bytes], str, str]] = {
    # what is sent, the tensor that is named, what the text says
    "no tensor at all": (lambda k: k.forge.pack({}, k.metadata()), "conv.weight", "missing"),
    "a weight is missing": (lambda k: k.edited(fc__weight=None), "fc.weight", "missing"),
    "a buffer is missing": (lambda k: k.edited(bn__running_mean=None), "bn.running_mean", "missing"),
    "one too many": (lambda k: k.edited(head__extra=np.zeros(4, FLOAT)), "head.extra", "unknown"),
    "a path as a name": (
        lambda k: k.edited(**{"../../../../tmp/pwned": np.zeros(1, FLOAT)}),
        "../../../../tmp/pwned",
        "unknown",
    ),
    "HTML as a name": (lambda k: k.edited(**{"<img src=x>": np.zeros(1, FLOAT)}), "<img src=x>", "unknown"),
    "another shape": (lambda k: k.edited(fc__weight=np.zeros(12, FLOAT)), "fc.weight", "[3, 4]"),
    "more classes": (lambda k: k.edited(fc__bias=np.zeros(7, FLOAT)), "fc.bias", "[3]"),
    "transposed": (lambda k: k.edited(fc__weight=np.zeros((4, 3), FLOAT)), "fc.weight", "[3, 4]"),
    "empty weight": (lambda k: k.edited(fc__weight=np.zeros((0, 4), FLOAT)), "fc.weight", "[0, 4]"),
    "counter became empty": (
        lambda k: k.edited(bn__num_batches_tracked=np.zeros(0, np.int64)),
        "bn.num_batches_tracked",
        "I64 []",
    ),
    "counter became a vector": (
        lambda k: k.edited(bn__num_batches_tracked=np.zeros(1, np.int64)),
        "bn.num_batches_tracked",
        "I64 []",
    ),
    "counter became a float": (
        lambda k: k.edited(bn__num_batches_tracked=np.float32(120.5)),
        "bn.num_batches_tracked",
        "I64 []",
    ),
    "float64": (_f64, "conv.weight", "F64"),
    "half": (lambda k: k.edited(fc__bias=np.zeros(3, np.float16)), "fc.bias", "F16"),
    "bfloat16": (lambda k: k.edited(fc__bias=np.zeros(3, ml_dtypes.bfloat16)), "fc.bias", "BF16"),
    "float8": (lambda k: k.lying(lambda h: h["fc.bias"].update(dtype="F8_E4M3")), "fc.bias", "F8_E4M3"),
    "unknown dtype": (lambda k: k.lying(lambda h: h["fc.bias"].update(dtype="F24")), "fc.bias", "F24"),
    "dtype is no string": (lambda k: k.lying(lambda h: h["fc.bias"].update(dtype=[])), "fc.bias", "not supported"),
    "DataParallel's prefix": (lambda k: _prefixed(k, "module."), "conv.weight", "'module.'"),
    "torch.compile's prefix": (lambda k: _prefixed(k, "_orig_mod."), "conv.weight", "'_orig_mod.'"),
}
VALUES: dict[str, tuple[Callable[[Kit], bytes], str, list[int]]] = {
    "NaN first": (lambda k: k.poked("conv.weight", 0, np.nan), "conv.weight", [0, 0, 0, 0]),
    "NaN in the middle": (lambda k: k.poked("fc.weight", 6, np.nan), "fc.weight", [1, 2]),
    "NaN last": (lambda k: k.poked("fc.bias", 2, np.nan), "fc.bias", [2]),
    "infinity": (lambda k: k.poked("fc.bias", 0, np.inf), "fc.bias", [0]),
    "minus infinity": (lambda k: k.poked("bn.running_mean", 3, -np.inf), "bn.running_mean", [3]),
    "negative variance": (lambda k: k.poked("bn.running_var", 1, -0.01), "bn.running_var", [1]),
}
METADATA: dict[str, tuple[dict[str, Any], str]] = {
    "no num_samples": ({"num_samples": None}, "num_samples"),
    "zero samples": ({"num_samples": "0"}, "num_samples"),
    "negative samples": ({"num_samples": "-3"}, "num_samples"),
    "half a sample": ({"num_samples": "1.5"}, "num_samples"),
    "samples as text": ({"num_samples": "many"}, "num_samples"),
    "NaN samples": ({"num_samples": "nan"}, "num_samples"),
    "absurdly many samples": ({"num_samples": "9" * 30}, "num_samples"),
    "absurdly many digits": ({"num_samples": "9" * 5000}, "num_samples"),
    "no base_model": ({"base_model": None}, "base_model"),
    "metrics are no JSON": ({"metrics": "{"}, "metrics"),
    "metrics are deep": ({"metrics": "[" * 50_000}, "metrics"),
    "metrics are a list": ({"metrics": "[1]"}, "metrics"),
    "loss is NaN": ({"metrics": '{"loss": NaN}'}, "metrics.loss"),
    "loss is the text nan": ({"metrics": '{"loss": "nan"}'}, "metrics.loss"),
    "loss overflows": ({"metrics": '{"loss": 1e999}'}, "metrics.loss"),
    "accuracy above one": ({"metrics": '{"accuracy": 1.5}'}, "metrics.accuracy"),
    "a metric with 5000 digits": ({"metrics": '{"loss": ' + "9" * 5000 + "}"}, "metrics"),
    "unknown metric": ({"metrics": '{"<img>": 1}'}, "metrics.<img>"),
}


def check_refused(response: httpx.Response, kind: str) -> dict[str, Any]:
    """A problem of this kind that says something, with the request's id."""
    assert response.status_code == KINDS[kind].status, response.text
    assert response.headers["content-type"] == MEDIA_TYPE
    problem: dict[str, Any] = response.json()
    assert problem["type"] == TYPE_PREFIX + kind, problem
    assert problem["title"] == KINDS[kind].title
    assert problem["status"] == response.status_code
    assert len(problem["detail"]) > 10
    assert problem["instance"] == response.headers["x-request-id"]
    return problem


Refuse = Callable[..., dict[str, Any]]
"""(body, kind of problem) -> the problem, with nothing left behind."""


@pytest.fixture
def refuse(kit: Kit) -> Refuse:
    """Send something, check that it is refused, and that it leaves nothing behind."""

    def send(body: Any, kind: str, **options: Any) -> dict[str, Any]:
        before, updates = kit.world.files(), kit.world.updates()
        options.setdefault("token", kit.fed.devices["a"].token)
        response = kit.world.site.request("PUT", options.pop("url", kit.url), body=body, **options)
        problem = check_refused(response, kind)
        assert kit.world.updates() == updates
        assert kit.world.files() == before
        assert not Path("PICKLE_WAS_EXECUTED").exists()
        assert response.extensions["waits"] == 0, "the answer was held back for a body that has ended"
        return problem

    return send


@pytest.mark.parametrize("case", CONTAINER)
def test_a_file_that_is_no_safetensors_file(kit: Kit, refuse: Refuse, case: str) -> None:
    make, said = CONTAINER[case]
    assert said.lower() in refuse(make(kit), "invalid-container")["detail"].lower()


@pytest.mark.parametrize("case", ["cut in the middle", "one byte short", "cut in the header", "a pickle", "HTML"])
def test_the_same_verdict_without_a_content_length(kit: Kit, refuse: Refuse, case: str) -> None:
    make, said = CONTAINER[case]
    body = make(kit)
    chunks = [body[i : i + 5] for i in range(0, len(body), 5)]
    assert said.lower() in refuse(chunks, "invalid-container")["detail"].lower()


@pytest.mark.parametrize("case", ["cut in the middle", "one byte short", "cut in the header", "sixteen bytes too many"])
def test_a_cut_file_is_told_how_many_bytes_were_there(kit: Kit, refuse: Refuse, case: str) -> None:
    body = CONTAINER[case][0](kit)
    problem = refuse(body, "invalid-container")
    assert problem["actual"] == len(body)
    assert problem["expected"] != len(body)


@pytest.mark.parametrize("case", TENSORS)
def test_other_tensors_than_the_model_has(kit: Kit, refuse: Refuse, case: str) -> None:
    make, tensor, said = TENSORS[case]
    problem = refuse(make(kit), "invalid-tensors")
    assert problem["tensor"] == tensor
    assert said in problem["detail"]


def test_many_wrong_tensors_are_counted_and_the_first_are_listed(kit: Kit, refuse: Refuse) -> None:
    many = {f"extra.{i}": np.zeros(1, np.float32) for i in range(50)}
    problem = refuse(kit.edited(**many), "invalid-tensors")
    assert problem["counts"] == {"missing": 0, "unknown": 50, "mismatched": 0}
    assert len(problem["unknown"]) == 20


@pytest.mark.parametrize("chunk", [0, 1, 7, 64])
@pytest.mark.parametrize("case", VALUES)
def test_values_that_no_model_may_have(kit: Kit, refuse: Refuse, case: str, chunk: int) -> None:
    make, tensor, index = VALUES[case]
    body = make(kit)
    sent = body if chunk == 0 else [body[i : i + chunk] for i in range(0, len(body), chunk)]
    problem = refuse(sent, "invalid-values")
    assert problem["tensor"] == tensor
    assert problem["index"] == index
    assert str(index) in problem["detail"]


@pytest.mark.parametrize("case", METADATA)
def test_metadata_that_says_too_little_or_nonsense(kit: Kit, refuse: Refuse, case: str) -> None:
    changes, named = METADATA[case]
    problem = refuse(kit.good(**changes), "invalid-field")
    assert problem["field"] == named
    assert named.split(".")[0] in problem["detail"]


def test_a_file_without_metadata(kit: Kit, refuse: Refuse) -> None:
    assert refuse(kit.forge.pack(kit.forge.arrays(1)), "invalid-field")["field"] == "num_samples"


@pytest.mark.parametrize("name", ["mdl_0123", "", "../../x", "a\x00b"])
def test_another_base_model(kit: Kit, refuse: Refuse, name: str) -> None:
    assert refuse(kit.good(base_model=name), "stale-base-model")["expected"] == kit.base


def test_an_announced_body_that_is_too_large(kit: Kit, refuse: Refuse) -> None:
    limit = kit.world.settings.max_upload_bytes
    problem = refuse(kit.good(), "too-large", headers={"Content-Length": str(100 * 2**30)})
    assert problem["expected"] == limit
    assert str(limit) in problem["detail"]


def test_a_chunked_body_that_is_too_large_is_refused_at_the_limit(kit: Kit, refuse: Refuse) -> None:
    limit = kit.world.settings.max_upload_bytes
    header = kit.forge.raw({"__metadata__": kit.metadata()})  # no tensors fit so many bytes; the limit comes first
    problem = refuse([header, *[bytes(4096)] * (limit // 4096 + 1)], "too-large")
    assert limit < problem["actual"] <= limit + 4096


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "gzip, identity"])
def test_a_compressed_body(kit: Kit, refuse: Refuse, encoding: str) -> None:
    body = gzip.compress(bytes(10**6))
    problem = refuse(body, "unsupported-media-type", headers={"Content-Encoding": encoding})
    assert "Content-Encoding" in problem["detail"]
    assert problem["field"] == "Content-Encoding"


@pytest.mark.parametrize(
    "headers",
    [
        [("Content-Encoding", "identity"), ("Content-Encoding", "gzip")],
        [("Transfer-Encoding", "gzip, chunked")],
        [("Transfer-Encoding", "gzip"), ("Transfer-Encoding", "chunked")],
    ],
)
def test_a_body_that_is_coded_in_a_second_place(kit: Kit, refuse: Refuse, headers: list[tuple[str, str]]) -> None:
    problem = refuse(kit.good(), "unsupported-media-type", headers=httpx.Headers(headers))
    assert problem["field"] == headers[0][0] and "gzip" in problem["detail"]


@pytest.mark.parametrize("media", ["application/json", "text/html", "multipart/form-data; boundary=x"])
def test_another_media_type(kit: Kit, refuse: Refuse, media: str) -> None:
    problem = refuse(kit.good(), "unsupported-media-type", headers={"Content-Type": media})
    assert "application/octet-stream" in problem["detail"]


def test_another_digest(kit: Kit, refuse: Refuse) -> None:
    digest = "sha-256=:" + "A" * 43 + "=:"
    assert "again" in refuse(kit.good(), "digest-mismatch", headers={"Content-Digest": digest})["detail"]


@pytest.mark.parametrize("digest", ["", "md5=:AA==:", "sha-256=:short:", "sha-256=:" + "!" * 44 + ":", "abc"])
def test_a_digest_that_cannot_be_read(kit: Kit, refuse: Refuse, digest: str) -> None:
    problem = refuse(kit.good(), "invalid-request", headers={"Content-Digest": digest})
    assert "sha-256=:" in problem["detail"]


def test_a_full_disk(kit: Kit, refuse: Refuse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(kit.world.blobs.scratch), "free_bytes", lambda self: 100)
    assert "disk is full" in refuse(kit.good(), "storage-full")["detail"]


@pytest.mark.parametrize("length", ["-1", "1.5", "abc"])
def test_a_content_length_that_is_no_number(kit: Kit, refuse: Refuse, length: str) -> None:
    refuse(kit.good(), "invalid-request", headers={"Content-Length": length})


def test_a_client_that_hangs_up_in_mid_body_leaves_nothing(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    before, updates = kit.world.files(), kit.world.updates()
    body = kit.good()
    with caplog.at_level("INFO"):
        for cut in (0, 4, 100, len(body) - 1):
            response = kit.world.site.request(
                "PUT", kit.url, token=kit.fed.devices["a"].token, body=[body[:cut]], hang_up=True
            )
            assert response.status_code == 400
    assert kit.world.updates() == updates
    assert kit.world.files() == before
    assert not [record for record in caplog.records if record.exc_info or record.levelname in ("ERROR", "CRITICAL")]
    assert sum("hung up" in record.message for record in caplog.records) == 4


def test_a_client_that_falls_silent_is_let_go(kit: Kit, refuse: Refuse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.api.problems._LINGER_SECONDS", 0.01)
    monkeypatch.setattr("service.api.bodies.IDLE_SECONDS", 0.05)
    before = kit.world.files()
    token = kit.fed.devices["a"].token
    response = kit.world.site.request("PUT", kit.url, token=token, body=[kit.good()[:50]], stall=True)
    assert "nothing came" in check_refused(response, "incomplete-body")["detail"]
    assert kit.world.files() == before
