"""A Python file stands for a package: in simulations, and when its choices are checked."""

import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from contract import plugins
from contract.choices import find
from contract.packages import PluginError
from contract.recipes import presets
from potstill import exits
from potstill.cli import app
from potstill.simulate.engine import Simulation
from potstill.simulate.history import digest_of
from tests.simulate.small import LOCAL, body, config, samples

from .conftest import Packages, files

SHORT = {"schedule": {"steps": 3, "batch_size": 8}}
RECIPE = {"name": "feddf", "options": {"weigh": {"kind": "acme-margin"}, "fuse": {"kind": "acme-midrange"}} | SHORT}
SMOOTH = {"objective": {"kind": "acme-smooth", "share": 0.2}}
RULE = """
import numpy as np
from typing import Literal
from contract.recipes.parts import FuseChoice
from worker.parts.blocks import reduce_files
from worker.registry import implements

asked = []


class Rule(FuseChoice):
    \"\"\"A rule.\"\"\"

    kind: Literal["acme-rule"] = "acme-rule"


@implements(Rule)
def rule(job, prototype, choice, target):
    asked.append(prototype)
    updates = job.updates[prototype]
    reduce_files([(each.client, each.weights) for each in updates], target, lambda block, values: {values})
    return {{each.client: 1 / len(updates) for each in updates}}
"""


def potstill(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def one_file(packages: Packages, tmp_path: Path) -> Path:
    """The page's package as one file, not installed."""
    lines = "\n".join(files().values()).splitlines()
    path = tmp_path / "rules.py"
    path.write_text("\n".join(line for line in lines if not line.startswith("from acme_rules")))
    return path


def digests(folder: Path) -> list[dict[str, str]]:
    history = Simulation(config(folder, body_=body(RECIPE, local=LOCAL | SMOOTH))).run()
    return [each.digests for each in history.rounds]


def test_a_file_makes_the_same_bytes_as_the_package(one_file: Path, packages: Packages, tmp_path: Path) -> None:
    taken = plugins.take_file(one_file)
    assert len(taken) == 4
    assert plugins.take_file(one_file) == taken
    recipe = presets.build("fedavg", {"fuse": {"kind": "acme-midrange"}})
    assert recipe.fuse.package == f"rules.py sha256-{digest_of(one_file).removeprefix('sha256-')[:12]}"
    of_file = digests(tmp_path / "file")
    packages.acme()
    assert presets.build("fedavg", {"fuse": {"kind": "acme-midrange"}}).fuse.package == "acme-rules 1.0"
    assert digests(tmp_path / "package") == of_file


def test_simulate_takes_a_file(one_file: Path, tmp_path: Path) -> None:
    inputs, labels = samples(0, 120)
    np.savez(tmp_path / "mine.npz", x=inputs, y=labels)
    small = ("--data", tmp_path / "mine.npz", "--clients", 3, "--rounds", 1, "--seeds", 1, "--alpha", 1)
    words = ("--recipe", "fedavg", "--option", 'fuse={"kind": "acme-midrange"}', *small, "--out", tmp_path / "out")
    refused = potstill("simulate", *words)
    assert refused.exit_code != 0
    assert "not 'acme-midrange'" in refused.output
    done = potstill("simulate", "--plugin", one_file, *words)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out" / "seed-0" / "fedavg" / "rounds" / "00001" / "result.json").exists()


def test_the_page_s_choices_are_sound(acme: Packages) -> None:
    done = potstill("plugin", "check")
    assert done.exit_code == 0, done.output
    assert done.output.splitlines() == [
        "distil.weigh 'acme-margin' of acme-rules 1.0: sound",
        "fuse 'acme-midrange' of acme-rules 1.0: sound",
        "local.objective 'acme-smooth' of acme-rules 1.0: sound",
        "rounds.metrics 'acme-brier' of acme-rules 1.0: sound",
    ]
    listed = potstill("plugin", "list")
    assert "Halfway between" in listed.output and "acme-rules 1.0" in listed.output


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ("values.mean(axis=0) + len(asked)", "does not repeat itself"),
        ("values[0]", "what clients are called makes a difference to"),
        ("values.mean(axis=0) + np.inf", "a federation with it fails: .*NaN or too large"),
        ("values.sum()", "a federation with it fails: .*the rule gave shape"),
    ],
)
def test_what_is_unsound_is_told(packages: Packages, tmp_path: Path, values: str, words: str) -> None:
    path = tmp_path / "rule.py"
    path.write_text(RULE.format(values=values))
    done = potstill("plugin", "check", path)
    assert done.exit_code == exits.WRONG, done.output
    assert "fuse 'acme-rule': " in done.output
    assert re.search(words, done.output.replace("\n", " ")), done.output


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 / 0", "cannot be loaded: division by zero"),
        ("def (", "cannot be loaded: invalid syntax"),
        (
            "x = 1",
            "defines no choice; define a class below that of fuse, distil.weigh, local.objective, ",
        ),
        (RULE.replace('"acme-rule"', '"median"'), "fuse has a choice 'median' already"),
        (RULE.replace('"acme-rule"', '"Acme Rule"'), "has the kind 'Acme Rule'; use lower-case letters"),
    ],
)
def test_a_file_that_cannot_be_taken_in_changes_nothing(
    packages: Packages, tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "rule.py"
    path.write_text(text)
    for _ in range(2):
        with pytest.raises(PluginError, match="the file '.*rule.py'") as caught:
            plugins.take_file(path)
        assert words in str(caught.value)
    assert plugins.installed() == []
    assert find("fuse", "acme-rule") is None
    with pytest.raises(PluginError, match="cannot be read: No such file"):
        plugins.take_file(tmp_path / "none.py")
