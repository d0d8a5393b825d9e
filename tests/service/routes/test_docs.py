"""The OpenAPI document and its page: complete, and with nothing from outside this machine."""

import json
import re
import socket
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from contract.architectures import CATALOGUE
from contract.recipes.presets import PRESETS
from contract.wire.federations import FederationCreate
from service.operations.progress import jobs
from service.operations.store import workers
from tests.service.world import World

METHODS = {"get", "put", "post", "delete", "head", "patch"}


@pytest.fixture(scope="module")
def document(shared: World) -> dict[str, Any]:
    found: dict[str, Any] = shared.site.request("GET", "/openapi.json").json()
    return found


def operations(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{method.upper()} {path}", operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if method in METHODS
    ]


def test_every_operation_says_what_it_does(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        assert operation["summary"], name
        assert len(operation["description"]) > 10, name
        assert operation["tags"], name


def test_every_json_body_has_an_example(document: dict[str, Any]) -> None:
    """Of the whole body, or of one of its fields: the page fills in the rest."""
    schemas = document["components"]["schemas"]
    for name, operation in operations(document):
        body = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if body is not None and "examples" not in body:
            options = body["schema"].get("anyOf", [body["schema"]])
            found = [schemas[each["$ref"].rpartition("/")[2]] for each in options if "$ref" in each]
            fields = [field for schema in found for field in schema["properties"].values()]
            assert any("examples" in field for field in fields), name


def test_the_examples_of_a_new_federation_are_taken(document: dict[str, Any]) -> None:
    examples = document["paths"]["/v1/federations"]["post"]["requestBody"]["content"]["application/json"]["examples"]
    assert len(examples) == 2
    for example in examples.values():
        FederationCreate.model_validate(example["value"])


def test_every_error_is_documented_as_a_problem(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        errors = {code: answer for code, answer in operation["responses"].items() if int(code) >= 400}
        for code, answer in errors.items():
            assert answer["description"], (name, code)
            if name != "GET /readyz":
                assert list(answer["content"]) == ["application/problem+json"], (name, code)
        if "/v1/" in name and operation.get("security"):
            guarded = {"401", "403"} if {} not in operation["security"] else {"403"}
            assert guarded | {"429"} <= set(errors), name


def test_references_lead_somewhere(document: dict[str, Any]) -> None:
    for reference in set(re.findall(r'"\$ref": "#/components/schemas/([^"]+)"', json.dumps(document))):
        assert reference in document["components"]["schemas"], reference
    assert "HTTPValidationError" not in json.dumps(document)
    assert not [name for name in document["components"]["schemas"] if "__" in name], "two classes share a name"


def test_nothing_points_outside(shared: World, document: dict[str, Any]) -> None:
    assert re.findall(r"https?://[^\s\"']+", json.dumps(document)) == []
    assert shared.app.openapi() is shared.app.openapi()


class _Assets(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        assert "style" not in values
        assert not any(name.startswith("on") for name in values)
        if tag in ("script", "link", "img"):
            self.found.append(values.get("src") or values.get("href") or "")


@pytest.mark.parametrize(("path", "folder"), [("/", "dashboard"), ("/docs", "reference")])
def test_a_page_loads_only_what_is_served_here(shared: World, path: str, folder: str) -> None:
    page = shared.site.request("GET", path)
    assert page.headers["content-type"].startswith("text/html")
    policy = dict(part.strip().partition(" ")[::2] for part in page.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert not re.search(r"https?:|unsafe", page.headers["content-security-policy"])
    parser = _Assets()
    parser.feed(page.text)
    assert len(parser.found) >= 4
    home = Path(str(files("service"))) / "static" / folder
    scripts = [path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file()]
    for asset in {*parser.found, *(f"static/{folder}/{name}" for name in scripts)}:
        assert asset.startswith("static/")  # beside the page, whatever path that is under
        response = shared.site.request("GET", f"/{asset}")
        assert (response.status_code, response.headers["cache-control"]) == (200, "no-cache"), asset
        assert response.headers["x-content-type-options"] == "nosniff"
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|@import", response.text), asset
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", response.text), asset
        assert "dangerously" not in response.text, asset  # what preact calls innerHTML


def test_modules_of_others_are_served_as_scripts(shared: World) -> None:
    for module in (files("service") / "static" / "vendor").iterdir():
        for script in [each for each in module.iterdir() if each.name.endswith((".js", ".mjs"))]:
            response = shared.site.request("GET", f"/static/vendor/{module.name}/{script.name}")
            assert response.headers["content-type"].partition(";")[0] in ("text/javascript", "application/javascript")
            assert (response.headers["cache-control"], response.headers["x-content-type-options"]) == (
                "no-cache",
                "nosniff",
            )


def test_the_service_at_a_glance(world: World) -> None:
    status = world.ok("GET", "/v1/status")
    assert (status["role"], status["ready"], status["heartbeat_age_seconds"]) == ("operator", False, None)
    with world.store.write() as session:
        workers.heartbeat(session, "wrk_1", "host", 1, "cpu", None)
    fed = world.create()
    world.ok("POST", f"/v1/federations/{fed.id}/start")
    status = world.ok("GET", "/v1/status")
    assert status["ready"] and status["checks"]["worker"]["ok"]
    assert status["heartbeat_age_seconds"] < 60 and status["oldest_queued_seconds"] > 0
    assert status["free_bytes"] > 0


def test_the_catalogue_is_shown_to_anyone(shared: World) -> None:
    recipes = shared.site.request("GET", "/v1/recipes").json()
    assert [recipe["name"] for recipe in recipes] == list(PRESETS)
    assert all(recipe["source"] and recipe["summary"] and recipe["composition"]["fuse"] for recipe in recipes)
    entries = shared.site.request("GET", "/v1/architectures").json()
    assert {entry["name"] for entry in entries} == set(CATALOGUE)
    assert all(entry["options"]["type"] == "object" for entry in entries)


def test_health_and_readiness(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert world.site.request("GET", "/healthz").json()["status"] == "ok"
    ready = world.site.request("GET", "/readyz?worker=false")
    assert (ready.status_code, ready.json()["ready"]) == (200, True)
    alone = world.site.request("GET", "/readyz")
    assert alone.status_code == 503
    assert alone.json()["checks"]["worker"] == {
        "ok": False,
        "detail": "no worker has been heard; start one, or look at its log",
    }
    with world.store.write() as session:
        workers.heartbeat(session, "wrk_1", "host", 1, "cpu", None)
    assert world.site.request("GET", "/readyz").status_code == 200
    [worker] = world.ok("GET", "/v1/workers")
    assert (worker["id"], worker["alive"], worker["job_id"]) == ("wrk_1", True, None)
    monkeypatch.setattr(type(world.blobs.scratch), "free_bytes", lambda self: -1)
    full = world.site.request("GET", "/readyz")
    assert (full.status_code, full.json()["checks"]["disk"]["ok"]) == (503, False)


def test_readiness_of_one_worker_process(world: World) -> None:
    with world.store.write() as session:
        workers.heartbeat(session, "wrk_1", socket.gethostname(), 10, "cpu", None)
    assert world.site.request("GET", "/readyz?pid=10").json()["checks"]["process"]["ok"]
    other = world.site.request("GET", "/readyz?pid=11")
    assert other.status_code == 503
    assert other.json()["checks"]["process"] == {
        "ok": False,
        "detail": "no worker has been heard; start one, or look at its log",
    }
    assert world.site.request("GET", "/readyz?pid=0").status_code == 422


def test_a_running_jobs_progress_is_shown(world: World) -> None:
    fed = world.running(["a"])
    world.push(fed, "a")
    job = world.claim()
    progress = {"phase": "teachers", "step": 5, "of": 20, "phase_seconds": 10.0}
    with world.store.write() as session:
        jobs.renew(session, job.id, job.fence, 30, progress)
    shown = world.ok("GET", f"/v1/jobs/{job.id}")["progress"]
    assert (shown["phase"], shown["step"], shown["of"]) == ("teachers", 5, 20)
    assert shown["rate"] == pytest.approx(0.5, rel=0.5)
    assert shown["eta"] == pytest.approx(30, rel=0.5)
    world.finish(job, {"main": world.forge.arrays(5)})
    assert world.ok("GET", f"/v1/jobs/{job.id}")["progress"] is None
    assert [j["id"] for j in world.ok("GET", f"/v1/jobs?federation={fed.id}&state=done")["items"]][-1] == job.id


def test_an_operation_has_a_short_name_of_its_own(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, operation in operations(document)]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+){0,3}", name) for name in names), names
    assert {"put_update", "create_federation", "get_assignment"} <= set(names)


def _schemas(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for key, inner in value.items():
            yield from _schemas(inner) if key not in ("example", "examples") else ()
    elif isinstance(value, list):
        for inner in value:
            yield from _schemas(inner)


def test_generators_of_clients_can_read_it(document: dict[str, Any]) -> None:
    for schema in _schemas(document):
        assert "prefixItems" not in schema
        assert not isinstance(schema.get("default"), dict) or "type" in schema["default"], schema
        assert "oneOf" not in schema or "discriminator" in schema, schema
        if schema.get("type") == "array":
            assert "items" in schema
    betas = document["components"]["schemas"]["Adam"]["properties"]["betas"]
    assert (betas["items"]["type"], betas["minItems"], betas["maxItems"]) == ("number", 2, 2)
    optimizer = document["components"]["schemas"]["DiscriminatorPlan"]["properties"]["optimizer"]
    assert "0.0002" in optimizer["description"]
    assert set(optimizer["discriminator"]["mapping"]) == {"sgd", "adam"}


def test_the_document_says_whose_it_is_and_explains_its_tags(document: dict[str, Any]) -> None:
    assert document["info"]["contact"]["name"] and document["info"]["license"]["identifier"] == "Apache-2.0"
    assert document["servers"][0]["url"] == "." and document["servers"][0]["description"]
    explained = {tag["name"] for tag in document["tags"] if tag["description"]}
    assert {tag for _, operation in operations(document) for tag in operation["tags"]} <= explained
