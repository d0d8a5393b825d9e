"""README.md (daily) and docs/quickstart.md (nightly), from data to the finished model, typed as they stand, smaller."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from potstill.demo.service import LocalService

from .shell import FENCE, ROOT, typed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
SMALLER = {
    "README.md": {"--rounds 5 --local epochs=5": "--rounds 2 --local epochs=2"},
    "docs/quickstart.md": {
        "epochs=10": "epochs=2",
        "--rounds 3 --local epochs=5": "--rounds 2 --local epochs=2",
        "--min-clients 4 --min-updates 4": "--min-clients 2 --min-updates 2",
        "for n in 0 1 2 3;": "for n in 0 1;",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    folder = tmp_path_factory.mktemp("clone")
    with LocalService(folder / ".potstill", folder / "up.log", env={"POTSTILL_TORCH_THREADS": "1"}) as service:
        yield service


def blocks(page: str, begin: str, end: str) -> list[tuple[str, str]]:
    """Return the blocks of a part of a page, with its sizes made smaller and this service's address."""
    text = (ROOT / page).read_text(encoding="utf-8").partition(begin)[2].partition(end)[0]
    for large, small in SMALLER[page].items():
        assert large in text, f"{page} has another size now"
        text = text.replace(large, small)
    return [(kind, block) for kind, block in FENCE.findall(text)]


def test_the_readme_leads_to_a_model(service: LocalService) -> None:
    folder = service.home.path.parent
    install, create, device, run = blocks("README.md", "## Use it with your own data", "## Read on")
    assert install[1].endswith("potstill up\n"), "which runs already"
    typed(create[1], folder, service.url)
    assert device[0] == "python"
    (folder / "device.py").write_text(device[1].replace("http://127.0.0.1:8080", service.url), encoding="utf-8")
    shown = typed(run[1], folder, service.url)
    models = re.findall(r"^finished with (\S+)$", shown, re.MULTILINE)
    assert len(models) == 2 and all(Path(each).stat().st_size for each in models)
    assert re.search(r"\bfinished\b.*", shown.replace(models[0], ""))


@pytest.mark.chaos
def test_the_quickstart_leads_to_a_distilled_model(service: LocalService) -> None:
    folder = service.home.path.parent
    prepare, add, create, devices = blocks(
        "docs/quickstart.md", "## 2. Give the service its data", "## 5. Take the model"
    )
    assert prepare[0] == "python"
    (folder / "prepare.py").write_text(prepare[1], encoding="utf-8")
    typed("python prepare.py", folder, service.url)
    for kind, block in (add, create, devices):
        assert kind == "sh"
        shown = typed(block, folder, service.url)
    made = json.loads((folder / "federation.json").read_text())
    with service.operator() as operator:
        done = operator.federation(made["id"])
        assert done.state == "finished" and done.composition.name == "feddf"
        assert len(operator.rounds(made["id"]).items) == 2
    assert "first" in shown
