"""Every fenced block of the documents is run, here or by the test that is named; what is not has its reason here.

`potstill` lines are parsed by test_docs.py; here those that create a federation are also held against its rules.
"""

import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from contract.choices import forget, tentatively
from contract.recipes.recipe import Recipe
from contract.wire.federations import FederationCreate
from potstill.cli import app
from potstill.commands import federation
from potstill.simulate.settings import Experiment

from .test_docs import BEFORE, FENCE, PAGES, ROOT

Names = dict[str, Any]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
BLOCKS = [
    (page.relative_to(ROOT).as_posix(), kind, block)
    for page in PAGES
    for kind, block in FENCE.findall(page.read_text())
]
NOT_RUN = {
    "docker compose up": "needs Docker; the file itself is run by tests/e2e/test_deployment.py and tools.distributed",
    "kubectl create secret": "needs a cluster; the chart is rendered by tests/e2e/test_deployment.py",
    "helm upgrade": "needs a cluster; the chart is rendered by tests/e2e/test_deployment.py",
    "CONFORMANCE_URL=http://other:9000": "is about somebody else's service",
}
"""Lines that no test runs, by how they begin."""
ELSEWHERE = {
    "README.md": "tests/examples/test_stories.py",
    "docs/quickstart.md": "tests/examples/test_stories.py",
    "examples/": "tests/examples/test_examples.py",
}
"""Pages whose blocks are typed from the first to the last, and where."""


# ----------------------------------------------------------------------------------------------------------------- JSON
SMALL: dict[str, Any] = {
    "name": "documented",
    "task": {"num_classes": 10, "input": {"shape": [1, 8, 8]}},
    "prototypes": [{"architecture": "cnn-digits"}],
    "recipe": {"name": "fedavg"},
}


def _documents(text: str) -> list[dict[str, Any]]:
    found, at = [], 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        document, size = json.JSONDecoder().raw_decode(text[at:])
        found.append(document)
        at += size
    return found


@pytest.mark.parametrize(
    ("page", "block"),
    [(page, block) for page, kind, block in BLOCKS if kind == "json"],
    ids=[f"{page}: {block[:40]!r}" for page, kind, block in BLOCKS if kind == "json"],
)
def test_json_is_what_it_stands_for(page: str, block: str) -> None:
    for document in _documents(block):
        if "level" in document:  # a line of the log: its own test is tests/service/test_log.py
            assert {"time", "level", "logger", "message", "program"} <= document.keys()
        elif "data" in document:
            Experiment.model_validate(document)
        elif "fuse" in document:
            Recipe.model_validate(document)
        elif "acme" in block:  # choices of a package: tests/plugins installs it
            assert document["recipe"]["options"]["weigh"]["kind"] == "acme-margin"
        else:
            FederationCreate.model_validate({**SMALL, **document, "prototypes": _whole(document)})


def _whole(document: dict[str, Any]) -> Any:
    return document.get("prototypes") or SMALL["prototypes"]


# ---------------------------------------------------------------------------------------------------------------- shell
def _lines(block: str) -> list[str]:
    return [line.strip() for line in re.sub(r"\\\n\s*", " ", block).splitlines() if line.strip()]


LINES = [(page, line, block) for page, kind, block in BLOCKS if kind in ("sh", "") for line in _lines(block)]


def _made(line: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {word for word in shlex.split(line, comments=True)[1:] if "=" not in word} <= targets


def _installed(line: str) -> None:
    extras = {extra for found in re.findall(r"\[([\w,]+)\]", line) for extra in found.split(",")}
    assert extras <= PYPROJECT["project"]["optional-dependencies"].keys()
    pinned = re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text().lower(), re.MULTILINE)
    words = shlex.split(line.partition("pip install")[2])
    named = [word for word in words if re.fullmatch(r"[a-z][\w-]*", word)]
    assert set(named) <= set(pinned)


def _module(line: str) -> None:
    words = shlex.split(line, comments=True)
    module = words[words.index("-m") + 1]
    assert find_spec(module) is not None
    assert all((ROOT / word).exists() for word in words if word.startswith("tests/"))


CHECKED: list[tuple[str, Callable[[str], None]]] = [
    (r"make\b", _made),
    (r"(\S+/)?pip install ", _installed),
    (
        r"python3 -m venv \S+ && (\. \S+|(?P<pip>\S+/pip install .*))$",
        lambda line: None,
    ),  # by tests/house/test_wheels.py
    (r"(\w+=\S+ )*python -m ", _module),
    (r"export \w+=", lambda line: None),  # the names are settings: test_docs.py
    (r"sh deploy/secrets\.sh ", lambda line: None),  # by tests/e2e/conftest.py
]


@pytest.mark.parametrize(("page", "line", "block"), LINES, ids=[f"{page}: {line[:50]}" for page, line, _ in LINES])
def test_every_line_of_a_shell_is_run_or_has_its_reason(page: str, line: str, block: str, tmp_path: Path) -> None:
    typed = any(page.startswith(place) for place in ELSEWHERE) or BEFORE.match(line)
    if typed or re.search(r"\bcurl\b", block):  # tests/e2e/test_documented_curl.py asks for every block that has it
        return
    if line.startswith(("python -c ", "openssl req ")):
        subprocess.run(["bash", "-euc", line], cwd=tmp_path, check=True, capture_output=True, timeout=60)
        assert list(tmp_path.iterdir()), "it leaves a file"
    elif not any(line.startswith(begin) for begin in NOT_RUN):
        checks = [check for how, check in CHECKED if re.match(how, line)]
        assert len(checks) == 1, f"nobody runs {line!r}"
        checks[0](line)


def test_reasons_are_of_lines_that_are_there() -> None:
    for begin in NOT_RUN:
        assert [line for _, line, _ in LINES if line.startswith(begin)], begin
    for place, test in ELSEWHERE.items():
        assert any(page.startswith(place) for page, _, _ in LINES) and (ROOT / test).exists()


CREATED = [
    (page, line) for page, line, _ in LINES if "potstill federation create" in line and page != "docs/reference.md"
]


@pytest.mark.parametrize(("page", "line"), CREATED, ids=[f"{page}: {line[27:70]}" for page, line in CREATED])
def test_a_documented_creation_is_a_body(page: str, line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[FederationCreate] = []

    def ask(client: Any, spec: FederationCreate) -> None:
        asked.append(spec)
        raise SystemExit

    monkeypatch.setattr(federation, "_created", ask)
    monkeypatch.setenv("POTSTILL_TOKEN", "pst_op_none")
    monkeypatch.chdir(tmp_path)
    Path("federation-spec.json").write_text(json.dumps(SMALL))
    words = shlex.split(re.sub(r"\s[>|;].*$", "", line), comments=True)
    shown = CliRunner().invoke(app, words[1:])
    assert len(asked) == 1, shown.output + shown.stderr
    federation_named = words[words.index("--name") + 1]
    assert asked[0].name == federation_named


# --------------------------------------------------------------------------------------------------------------- Python
def _run(block: str, names: Names | None = None) -> Names:
    found: Names = dict(names or {})
    exec(compile(block, "docs", "exec"), found)  # noqa: S102  # our own pages
    return found


def a_choice(block: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    head = "from typing import Literal\nfrom pydantic import Field\nfrom contract.choices import Declares\n"
    with tentatively():
        made = _run(f"{head}from contract.recipes.parts import WeighFactor\n{block}")["WeighMargin"]
        forget([made])
    assert made.slot == "distil.weigh" and made().power == 1.0


def prepared(block: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Also by tests/examples, as a program."""
    monkeypatch.chdir(folder)
    _run(block)
    assert {path.name for path in folder.iterdir()} >= {
        "server.safetensors",
        "test.safetensors",
        "device-3.safetensors",
    }


def tokenized(block: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    assert _run(block)["ids"].shape == (2, 32)


def rows_of_networks(block: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    entry = _run(block)["tiny"]
    assert (entry.name, entry.builder) == ("acme-tiny", "nets.build:tiny")


def a_builder(block: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    import torch

    task = SimpleNamespace(input=SimpleNamespace(shape=[5]), num_classes=3)
    module = _run(block)["tiny"](SimpleNamespace(width=4), task)
    assert module(torch.zeros(2, 5)).shape == (2, 3)


def a_device(block: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    done = SimpleNamespace(index=1, loss=0.1, accuracy=0.9, uploaded=True)
    report = SimpleNamespace(rounds=[done], model_path=folder / "final.safetensors")
    main = _run(block)["main"]
    main.__globals__["train_and_push"] = _Asked(report)
    assert main("http://127.0.0.1:1", "fed_1", "pst_join_1", ([], [])) == folder / "final.safetensors"


def several_inputs(block: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    asked = _Asked()
    told: Names = {"url": "u", "rows": [], "federation": "f", "token": "t", "module": None, "train_and_push": asked}
    _run(block, told)
    from client_sdk import intake

    named, label = asked.options["columns"]
    rows = {name: np.zeros((3, 4), np.int64) for name in named.values()} | {label: np.zeros(3, np.int64)}
    assert len(intake.take(rows, None, columns=(named, label))) == 3


def peers(block: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    asked = _Asked()
    _run(block, {"url": "u", "data": [], "token": "t", "train_and_push": asked})
    assert asked.options["secure"] is True and set(asked.options["peers"]) == {"ben", "cleo"}


class _Asked:
    """Stands for `train_and_push`, and takes what that takes."""

    def __init__(self, report: Any = None) -> None:
        self.options: dict[str, Any] = {}
        self._report = report

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        import inspect

        from client_sdk import train_and_push

        inspect.signature(train_and_push).bind(*arguments, **options)
        self.options = options
        return self._report


def an_imported_model(block: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    from contract.tensors import TensorFile

    class Operator:
        def __init__(self, url: str, token: str):
            assert (url, token) == ("u", "t")

        def __enter__(self) -> "Operator":
            return self

        def __exit__(self, *error: object) -> None:
            return None

        def import_model(self, path: str, *, architecture: str) -> Any:
            with TensorFile(Path(path)) as file:
                return SimpleNamespace(id=f"{architecture} of {len(file.names)}")

    monkeypatch.chdir(folder)
    imported = _run(block)["import_first_model"]
    imported.__globals__["OperatorClient"] = Operator
    assert imported("u", "t") == "custom of 4"


def a_simulation(block: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.chdir(folder)
    random = np.random.default_rng(0)
    names: Names = {}
    for x, y in (("x1", "y1"), ("x2", "y2"), ("x", "y")):
        names |= {x: random.random((8, 1, 8, 8), np.float32), y: random.integers(0, 10, 8)}
    body = SMALL | {"local": {"epochs": 1}, "rounds": {"total": 1, "min_updates": 1}}
    body["prototypes"] = [{"architecture": "mlp", "options": {"hidden": [4]}}]
    found = _run(block, names | {"u": names["x"], "body": body})
    assert Path(found["history"].rounds[-1].models["main"]).is_file()


HERE: dict[tuple[str, str], Callable[[str, pytest.MonkeyPatch, Path], None]] = {
    ("CONTRIBUTING.md", "class WeighMargin"): a_choice,
    ("docs/quickstart.md", "parts = split(seed=0)"): prepared,
    ("docs/architectures.md", "HashingTokenizer"): tokenized,
    ("docs/architectures.md", "# nets/rows.py"): rows_of_networks,
    ("docs/architectures.md", "# nets/build.py"): a_builder,
    ("docs/devices.md", "def main(url, federation, join_token, dataset):\n    report"): a_device,
    ("docs/devices.md", "columns = "): several_inputs,
    ("docs/devices.md", "peers={"): peers,
    ("docs/devices.md", "def import_first_model"): an_imported_model,
    ("docs/simulate.md", "config = SimulationConfig("): a_simulation,
}
THERE = {
    ("README.md", "class MyImages"): "tests/examples/test_stories.py",
    ("docs/devices.md", "def train(task"): "tests/client_sdk/test_documented_loops.py",
    ("docs/devices.md", "def lightning"): "tests/client_sdk/test_frameworks.py",
    ("docs/devices.md", "def hugging_face"): "tests/client_sdk/test_frameworks.py",
    ("docs/devices.md", "def take_part"): "tests/client_sdk/test_documented_loops.py",
    ("docs/devices.md", "def follow"): "tests/client_sdk/test_documented_loops.py",
    ("docs/extending.md", "# acme_rules/"): "tests/plugins/conftest.py",
    ("docs/extending.md", "test_margin_is_sound"): "tests/plugins/test_choices.py",
    ("docs/rounds.md", "load_ensemble"): "tests/service/operations/steer/test_predicting.py",
    ("docs/simulate.md", "results = simulate.run("): "tests/simulate/test_python.py",
    ("docs/simulate.md", "# rules.py"): "tests/simulate/test_python.py",
}
PYTHON = [(page, block) for page, kind, block in BLOCKS if kind == "python"]


def test_every_block_of_python_is_run_once() -> None:
    for page, block in PYTHON:
        runs = [what for where, what in (*HERE, *THERE) if where == page and what in block]
        assert len(runs) == 1, f"{page}: {block[:80]!r} is run by {runs}"
    for page, what in (*HERE, *THERE):
        assert [block for where, block in PYTHON if where == page and what in block], what
    assert all((ROOT / test).exists() for test in THERE.values())


@pytest.mark.parametrize(("page", "what"), HERE, ids=[does.__name__ for does in HERE.values()])
def test_a_block_of_python_does_what_its_page_says(
    page: str, what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (block,) = [block for where, block in PYTHON if where == page and what in block]
    HERE[page, what](block, monkeypatch, tmp_path)
