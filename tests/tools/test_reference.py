"""docs/reference.md has every recipe, says all of each option, and its commands create what they say."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from contract.recipes.presets import PRESETS
from contract.wire.federations import FederationCreate
from potstill.cli import app
from potstill.commands import federation
from tools import reference

PAGE = (Path(__file__).parents[2] / "docs" / "reference.md").read_text()
SECTIONS = dict(re.findall(r"^## `([\w+-]+)`\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL))


class Asked(Exception):
    """What would be sent."""


def test_every_recipe_has_its_section() -> None:
    assert list(SECTIONS) == list(PRESETS)
    for name, text in SECTIONS.items():
        assert PRESETS[name].source in text and "- Devices send " in text
        assert all(choice in text for choice in PRESETS[name].choices)


def test_every_option_says_what_it_is() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| (`.*`) \| (.*) \| (.*) \|$", PAGE, re.MULTILINE)
    assert len(rows) > 500
    assert [row for row in rows if not row[3].strip()] == []
    assert ("weigh.link", '`"double_sigmoid"`', "`double_sigmoid`, `sigmoid`, `prob`") in {row[:3] for row in rows}
    assert ("fuse.beta", "`0.3`", "[0, 1)") in {row[:3] for row in rows}


@pytest.mark.parametrize("name", PRESETS)
def test_its_command_creates_a_federation(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As the page has it, with the file that it says; what is asked for is held against the rules of creation."""

    def ask(client: Any, spec: FederationCreate) -> None:
        raise Asked(spec)

    monkeypatch.setattr(federation, "_created", ask)
    monkeypatch.setenv("POTSTILL_TOKEN", "pst_op_none")
    monkeypatch.chdir(tmp_path)
    for file in re.findall(r"```json\n(.*?)```", SECTIONS[name], re.DOTALL):
        Path("server.json").write_text(file)
    [command] = re.findall(r"```sh\n(.*?)```", SECTIONS[name], re.DOTALL)
    words = shlex.split(command.replace("\\\n", " "))
    done = CliRunner().invoke(app, words[1:])
    assert isinstance(done.exception, Asked), (done.output, done.stderr)
    spec: FederationCreate = done.exception.args[0]
    assert (spec.name, getattr(spec.recipe, "name", None)) == (name, name)
    assert reference.accepted(spec.model_dump(mode="json", exclude_none=True))


def test_what_creation_refuses_is_not_shown() -> None:
    body = reference.body_of("fedma", PRESETS["fedma"], "resnet-8")
    assert not reference.accepted(body)
    assert "--architecture vgg-9" in SECTIONS["fedma"]
