"""Other people's tools on the OpenAPI document: a linter, and generators of clients in Python and in TypeScript.

What they generate is used: every answer of the API goes through it and comes out as it was.
"""

import importlib
import json
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.service.world import Fed, World

SPECTRAL, TYPESCRIPT = "@stoplight/spectral-cli@6.16.3", "openapi-typescript@7.13.0"
SETTINGS = Path(__file__).parents[3] / "docs" / "openapi-python-client.yaml"
"""Which says what the generator of Python does not know: that tus pieces and tar files are bytes."""


@pytest.fixture(scope="module")
def fed(shared: World) -> Fed:
    return shared.running(["a"])


@pytest.fixture(scope="module")
def document(shared: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("document") / "openapi.json"
    path.write_bytes(shared.site.request("GET", "/openapi.json").content)
    return path


@pytest.fixture(scope="module")
def package(document: Path) -> Iterator[ModuleType]:
    """The generated client for Python; its modules are forgotten afterwards."""
    tool = shutil.which("openapi-python-client", path=sysconfig.get_path("scripts")) or shutil.which(
        "openapi-python-client"
    )
    if tool is None:
        pytest.skip("NO openapi-python-client HERE: the client that it makes of the document is not tested")
    folder = document.parent / "generated_client"
    options = [
        "--fail-on-warning",
        "--path",
        str(document),
        "--output-path",
        str(folder),
        "--meta",
        "none",
        "--config",
        str(SETTINGS),
    ]
    made = subprocess.run(
        [tool, "generate", *options, "--fail-on-warning"], capture_output=True, text=True, timeout=120
    )
    assert made.returncode == 0, made.stdout + made.stderr
    sys.path.insert(0, str(folder.parent))
    try:
        yield importlib.import_module("generated_client")
    finally:
        sys.path.remove(str(folder.parent))
        for name in [name for name in sys.modules if name.partition(".")[0] == "generated_client"]:
            del sys.modules[name]


def _read(package: ModuleType, name: str) -> Any:
    models = importlib.import_module(f"{package.__name__}.models")
    return getattr(models, name)


def test_the_python_client_reads_and_writes_what_is_answered(shared: World, fed: Fed, package: ModuleType) -> None:
    device = fed.devices["a"].token
    for answer, kind in (
        (shared.ok("GET", f"/v1/federations/{fed.id}"), "Federation"),
        (shared.site.request("GET", "/v1/assignment", token=device).json(), "TrainAssignment"),
        (shared.ok("GET", f"/v1/federations/{fed.id}/rounds")["items"][0], "Round"),
        (shared.ok("GET", "/v1/recipes")[2], "RecipeInfo"),
    ):
        assert _read(package, kind).from_dict(answer).to_dict() == answer


def test_the_python_client_tells_assignments_apart(shared: World, fed: Fed, package: ModuleType) -> None:
    parse = importlib.import_module(f"{package.__name__}.api.devices.get_assignment")._parse_response
    answer = shared.site.request("GET", "/v1/assignment", token=fed.devices["a"].token)
    assert type(parse(client=None, response=answer)).__name__ == "TrainAssignment"
    shared.push(fed, "a")
    answer = shared.site.request("GET", "/v1/assignment", token=fed.devices["a"].token)
    assert type(parse(client=None, response=answer)).__name__ == "WaitAssignment"


@pytest.fixture(scope="module")
def node(document: Path) -> Path:
    """The folder of the document, with what `npx` made of it: `lint.json` and `client.ts`."""
    npx = shutil.which("npx")
    if npx is None:
        pytest.skip("NO NODE HERE: the document is not linted, and no client for TypeScript is made of it")
    rules = document.parent / "rules.yaml"
    rules.write_text('extends: ["spectral:oas"]\n', encoding="utf-8")
    steps = f"spectral lint -q -f json -o lint.json -r {rules.name} {document.name}"
    command = [npx, "--yes", "--package", SPECTRAL, "--package", TYPESCRIPT, "-c"]
    try:
        made = subprocess.run(
            [*command, f"{steps}; openapi-typescript {document.name} -o client.ts"],
            cwd=document.parent,
            capture_output=True,
            text=True,
            timeout=150,
        )
    except subprocess.TimeoutExpired:
        pytest.skip("NPM DOES NOT ANSWER: the document is not linted, and no client for TypeScript is made of it")
    if "npm error" in made.stderr:
        pytest.skip(f"NPM HAS NO {SPECTRAL}: the document is not linted ({made.stderr[:200]})")
    assert made.returncode == 0, made.stdout + made.stderr
    return document.parent


def test_the_linter_finds_nothing(node: Path) -> None:
    found = json.loads((node / "lint.json").read_text(encoding="utf-8"))
    assert [(each["code"], each["path"], each["message"]) for each in found] == []


def test_the_typescript_client_has_every_operation(node: Path, document: Path) -> None:
    text = (node / "client.ts").read_text(encoding="utf-8")
    paths = json.loads(document.read_bytes())["paths"].values()
    names = [operation["operationId"] for item in paths for operation in item.values()]
    assert len(names) > 60
    assert [name for name in names if f'operations["{name}"]' not in text] == []
    assert "unknown[]" not in text  # what a tuple by prefixItems becomes
