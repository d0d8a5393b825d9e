"""Downloads that go on, imports, parents."""

import base64
import hashlib
from typing import Any

import numpy as np
import pytest

from contract.wire.problems import MEDIA_TYPE, TYPE_PREFIX
from service.api import blobs
from tests.service.world import World


@pytest.fixture(scope="module")
def model(shared: World) -> tuple[dict[str, Any], bytes]:
    body = shared.forge.pack(shared.forge.arrays(3), {"format": "pt"})
    return shared.ok("POST", "/v1/models?architecture=mlp", body=body), body


def test_a_download_names_its_digest(shared: World, model: tuple[dict[str, Any], bytes]) -> None:
    info, body = model
    response = shared.op("GET", info["url"])
    assert response.status_code == 200
    assert response.content == body
    assert response.headers["etag"] == f'"{info["digest"]}"' == f'"sha256-{hashlib.sha256(body).hexdigest()}"'
    digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
    assert response.headers["repr-digest"] == f"sha-256=:{digest}:"
    assert response.headers["content-length"] == str(len(body)) == str(info["size"])
    assert response.headers["content-type"] == "application/octet-stream"
    assert response.headers["accept-ranges"] == "bytes"
    assert "private" in response.headers["cache-control"]


def test_a_small_file_comes_as_a_large_one_does(
    shared: World, model: tuple[dict[str, Any], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    info, _ = model
    varying = ("x-request-id", "ratelimit", "date")
    small = shared.op("GET", info["url"])
    monkeypatch.setattr(blobs, "SMALL", len(small.content) - 1)
    large = shared.op("GET", info["url"])
    assert large.content == small.content
    told = [{name: text for name, text in each.headers.items() if name not in varying} for each in (small, large)]
    assert told[0] == told[1] and "last-modified" in told[0]


def test_head_has_the_headers_and_no_body(shared: World, model: tuple[dict[str, Any], bytes]) -> None:
    info, body = model
    response = shared.op("HEAD", info["url"])
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["content-length"] == str(len(body))
    assert response.headers["etag"] == f'"{info["digest"]}"'


@pytest.mark.parametrize("given", ['"{}"', 'W/"{}"', '"other", "{}"', "*"])
def test_what_the_caller_has_is_not_sent_again(shared: World, model: tuple[dict[str, Any], bytes], given: str) -> None:
    info, _ = model
    response = shared.op("GET", info["url"], headers={"If-None-Match": given.format(info["digest"])})
    assert (response.status_code, response.content) == (304, b"")
    assert response.headers["etag"] == f'"{info["digest"]}"'


def test_another_etag_is_answered_in_full(shared: World, model: tuple[dict[str, Any], bytes]) -> None:
    assert shared.op("GET", model[0]["url"], headers={"If-None-Match": '"sha256-0"'}).status_code == 200


@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [("0-0", 0, 0), ("10-19", 10, 19), ("100-", 100, -1), ("-5", -5, -1), ("0-99999999", 0, -1)],
)
def test_a_part(shared: World, model: tuple[dict[str, Any], bytes], asked: str, first: int, last: int) -> None:
    info, body = model
    first, last = first % len(body), last % len(body)
    response = shared.op("GET", info["url"], headers={"Range": f"bytes={asked}"})
    assert response.status_code == 206
    assert response.content == body[first : last + 1]
    assert response.headers["content-range"] == f"bytes {first}-{last}/{len(body)}"
    assert response.headers["etag"] == f'"{info["digest"]}"'


def test_a_part_of_another_version_is_the_whole(shared: World, model: tuple[dict[str, Any], bytes]) -> None:
    info, body = model
    headers = {"Range": "bytes=10-", "If-Range": '"sha256-0"'}
    assert shared.op("GET", info["url"], headers=headers).content == body
    headers["If-Range"] = f'"{info["digest"]}"'
    assert shared.op("GET", info["url"], headers=headers).content == body[10:]


def test_a_part_beyond_the_end_is_a_problem(shared: World, model: tuple[dict[str, Any], bytes]) -> None:
    info, body = model
    response = shared.op("GET", info["url"], headers={"Range": f"bytes={len(body)}-"})
    assert response.status_code == 416
    assert response.headers["content-type"] == MEDIA_TYPE
    assert response.headers["content-range"] == f"bytes */{len(body)}"
    assert response.json()["type"] == TYPE_PREFIX + "range-not-satisfiable"
    assert str(len(body)) in response.json()["detail"]


@pytest.mark.parametrize("asked", ["lines=1-2", "bytes=", "bytes=a-b", "bytes=5-2"])
def test_a_range_that_makes_no_sense_is_no_server_error(
    shared: World, model: tuple[dict[str, Any], bytes], asked: str
) -> None:
    response = shared.op("GET", model[0]["url"], headers={"Range": asked})
    assert response.status_code in (200, 400, 416)
    if response.status_code != 200:
        assert response.headers["content-type"] == MEDIA_TYPE


def test_an_imported_model_starts_a_federation(world: World) -> None:
    body = world.forge.pack(world.forge.arrays(3))
    info = world.ok("POST", "/v1/models", body=body)
    assert (info["role"], info["federation_id"], info["current"]) == ("imported", None, False)
    prototype = {"architecture": "custom", "initial_model": info["id"]}
    fed = world.create(prototypes=[prototype])
    assert world.show(fed)["prototypes"][0]["initial_model"] == info["id"]
    card = world.site.request("GET", f"/v1/federations/{fed.id}/card", token=fed.join_token).json()
    dtypes = {"f": "F32", "i": "I64"}
    kinds = {
        name: {"dtype": dtypes[array.dtype.kind], "shape": list(array.shape)}
        for name, array in world.forge.arrays(3).items()
    }
    assert card["tensors"] == {"main": kinds} and list(card["tensors"]["main"]) == list(kinds)
    assert card["local"]["objective"] == {"kind": "sgd"}
    response = world.op("POST", "/v1/federations", json=world.body(prototypes=[prototype | {"initial_model": "mdl_x"}]))
    assert response.status_code in (404, 422)
    assert "mdl_x" in response.json()["detail"]


def test_imports_that_are_refused_leave_nothing(world: World) -> None:
    before = world.files()
    arrays = world.forge.arrays(3)
    arrays["fc.bias"][1] = np.nan
    bodies = [world.forge.pack(arrays), world.forge.pack(world.forge.arrays())[:-2], b"\x80\x04pickle", b""]
    for body in bodies:
        assert world.op("POST", "/v1/models", body=body).status_code == 422
    for nothing in ({}, {"steps": np.array(3)}, {"w": np.zeros((0, 4), np.float32)}):
        problem = world.op("POST", "/v1/models", body=world.forge.pack(nothing)).json()
        assert problem["type"].endswith("invalid-tensors") and "nothing to train" in problem["detail"]
        assert "F32" in problem["expected"]
    response = world.op("POST", "/v1/models?architecture=nope", body=world.forge.pack(world.forge.arrays()))
    assert response.status_code == 422
    assert response.json()["field"] == "architecture"
    assert world.files() == before
    assert world.ok("GET", "/v1/models")["items"] == []


def test_models_are_listed_by_federation_and_prototype(world: World) -> None:
    fed = world.running(["a"])
    world.ok("POST", "/v1/models", body=world.forge.pack(world.forge.arrays()))
    assert len(world.ok("GET", "/v1/models")["items"]) == 2
    mine = world.ok("GET", f"/v1/models?federation={fed.id}&prototype=main")["items"]
    assert [(m["role"], m["current"], m["round"]) for m in mine] == [("initial", True, 0)]
    assert world.ok("GET", f"/v1/models?federation={fed.id}&prototype=x")["items"] == []
    assert world.op("GET", "/v1/models?federation=fed_x").status_code == 404
