"""Every folder of examples/ does what its page says, typed as the page has it, against one `potstill up`."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from potstill.demo.service import LocalService

from .shell import FENCE, ROOT, typed

EXAMPLES = ROOT / "examples"
FOLDERS = sorted(page.parent.name for page in EXAMPLES.glob("*/README.md"))
NOTEBOOKS = sorted(EXAMPLES.glob("*/*.ipynb"))
NEEDS = {"curl": ("curl", "jq"), "typescript": ("npm",)}
CHROMIUM = shutil.which("chromium")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def command_of(folder: str) -> str:
    [block] = [block for kind, block in FENCE.findall((EXAMPLES / folder / "README.md").read_text()) if kind == "sh"]
    return str(block)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the examples in it, as a clone has them."""
    clone = tmp_path_factory.mktemp("clone")
    shutil.copytree(EXAMPLES, clone / "examples", ignore=shutil.ignore_patterns("node_modules", "made"))
    return clone


@pytest.fixture(scope="module")
def service(clone: Path) -> Iterator[LocalService]:
    with LocalService(clone / ".potstill", clone / "up.log", env={"POTSTILL_TORCH_THREADS": "1"}) as service:
        yield service


def installed(clone: Path) -> Path:
    """Return the folder of the TypeScript with its packages; skip where npm reaches no registry."""
    folder = clone / "examples" / "typescript"
    if not (folder / "node_modules").is_dir():
        done = subprocess.run(["npm", "ci"], cwd=folder, capture_output=True, text=True, timeout=200)
        if "npm error network" in done.stderr or "npm error code E" in done.stderr:
            pytest.skip(f"NPM DOES NOT ANSWER: examples/typescript is not tested ({done.stderr[:200]})")
        assert done.returncode == 0, done.stderr
    return folder


def test_every_folder_has_a_page_that_the_list_names() -> None:
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    assert folders == set(FOLDERS) and len(FOLDERS) >= 7
    listed = re.findall(r"^\| \[([\w-]+)\]\(\1\)", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == FOLDERS
    assert all(f"examples/{folder}" in command_of(folder) for folder in FOLDERS)


@pytest.mark.parametrize("folder", [each for each in FOLDERS if each not in {path.parent.name for path in NOTEBOOKS}])
def test_an_example_learns(service: LocalService, clone: Path, folder: str) -> None:
    missing = [program for program in NEEDS.get(folder, ()) if shutil.which(program) is None]
    if missing:
        pytest.skip(f"NO {' AND NO '.join(missing)} HERE: examples/{folder} is not tested")
    if folder == "typescript":
        installed(clone)
    with service.operator() as operator:
        before = {each.id for each in operator.federations(limit=100).items}
        shown = typed(command_of(folder), clone, service.url)
        made = [each for each in operator.federations(limit=100).items if each.id not in before]
        assert made and all(each.name.startswith(f"{folder}-") and each.state == "finished" for each in made), shown
        for each in made:
            rounds = sorted(operator.rounds(each.id).items, key=lambda round: round.index)
            reached = [round.metrics["accuracy"] for round in rounds]
            assert reached[-1] > reached[0] and reached[-1] > 1 / 2, reached
            assert f"{reached[-1]:.3f}"[:4] in shown, "it shows how far it came"


@pytest.mark.skipif(shutil.which("npm") is None, reason="NO NODE HERE: a device in a browser is not tested")
@pytest.mark.skipif(CHROMIUM is None, reason="NO CHROMIUM HERE: a device in a browser is not tested")
def test_a_browser_is_a_device(service: LocalService, clone: Path) -> None:
    from playwright.sync_api import sync_playwright

    folder = installed(clone)
    if not (folder / "made" / "browser.js").exists():  # the page's own lines, but for this: `digits` has built it
        typed("cd examples/typescript; npm run --silent build", clone, service.url)
    command = ["node", "made/node.js", "--page"]
    env = os.environ | {"POTSTILL_URL": service.url, "POTSTILL_TOKEN": service.token}
    with (
        subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True) as node,
        sync_playwright() as play,
    ):
        assert node.stdout is not None
        said = node.stdout.readline()
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page, console, asked = browser.new_page(), list[str](), set[str]()
        page.on("console", lambda message: console.append(message.text))
        page.on("request", lambda request: asked.add(request.url.split("/")[2]))
        address = re.sub("^open ", "", said.strip())
        page.goto(address)
        page.wait_for_function(
            "/^(finished|stopped)/.test(document.querySelector('output').textContent)", timeout=120_000
        )
        shown, rounds = page.text_content("output") or "", page.locator("li").all_text_contents()
        browser.close()
        rest = node.stdout.read()
        assert node.wait(60) == 0
    final = re.search(r"measured here: ([\d.]+) %", rest)
    assert final is not None and float(final[1]) > 50, rest
    assert shown == f"finished: the final model gets {final[1]} % of the test images right"
    assert [line.split(":")[0] for line in rounds] == [f"browser, round {number}" for number in range(1, 7)]
    assert console == [] and asked == {address.split("/")[2]}, "it speaks to its own address alone"
    with service.operator() as operator:
        newest = max(operator.federations(limit=100).items, key=lambda each: each.created_at)
        assert {each.name for each in operator.clients(newest.id).items} == {"node-0", "node-1", "browser"}


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbclient
    import nbformat

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    book = nbformat.read(notebook, as_version=4)
    assert notebook.name in command_of(notebook.parent.name)
    assert not any(cell.get("outputs") for cell in book.cells), "committed without what it printed"
    [sizes] = [cell for cell in book.cells if "parameters" in cell.metadata.get("tags", ())]
    assert re.match(r"SEEDS, ROUNDS = 3, 5\b", sizes.source)
    sizes.source = "SEEDS, ROUNDS = 2, 1"
    nbclient.NotebookClient(book, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs: list[Any] = [output for cell in book.cells for output in cell.get("outputs", [])]
    printed = "".join(output.get("text", "") for output in outputs)
    assert re.search(r"^\| fedgo-small \| 2 \|", printed, re.MULTILINE) and "feddf minus fedavg: " in printed
    assert [output for output in outputs if "image/png" in output.get("data", {})], "the plot is shown"
