"""Architectures of other packages, installed as a real distribution would be: metadata on sys.path."""

import importlib
import sys
from pathlib import Path

import pytest
import torch

from contract import architectures
from contract.nn import registry
from contract.wire.federations import Task

TASK = Task.model_validate({"num_classes": 3, "input": {"shape": [4]}})
OWN = tuple(architectures.CATALOGUE.values())
ROW = """
from contract.architecture_options import Options
from contract.architectures import Entry

class TinyOptions(Options):
    width: int = 2

tiny = Entry("{name}", "classifier", TinyOptions, "two layers", builder="{package}_nets:{builder}")
"""
NETS = """
from torch import nn

def build(options, task):
    return nn.Sequential(nn.Linear(task.input.shape[0], options.width), nn.Linear(options.width, task.num_classes))

def nothing(options, task):
    return None
"""


class Install:
    """Writes a package with a row and a builder, and makes the catalogue look again."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch):
        self.folder, self.patch = folder, patch
        patch.syspath_prepend(folder)

    def __call__(
        self,
        package: str,
        *,
        name: str = "tiny",
        builder: str = "build",
        row: str = ROW,
        attribute: str = "tiny",
        own: tuple[architectures.Entry, ...] = OWN,
    ) -> None:
        (self.folder / f"{package}.py").write_text(row.format(name=name, package=package, builder=builder))
        (self.folder / f"{package}_nets.py").write_text(NETS)
        info = self.folder / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{architectures.ENTRY_POINTS}]\n{package} = {package}:{attribute}\n")
        importlib.invalidate_caches()
        for module in (package, f"{package}_nets"):
            self.patch.delitem(sys.modules, module, raising=False)
        self.patch.setattr(architectures, "CATALOGUE", architectures.Catalogue(own))


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    return Install(tmp_path, monkeypatch)


def test_a_package_s_network_is_one_like_any_other(install: Install) -> None:
    install("potstill_test_a")
    entry = architectures.find("tiny", "classifier")
    assert entry.options.model_validate({}).model_dump() == {"width": 2}
    assert "tiny" in registry.registered()
    module = registry.initialise("tiny", {"width": 5}, TASK, 1)
    assert [tuple(p.shape) for p in module.parameters()] == [(5, 4), (5,), (3, 5), (3,)]
    again = registry.initialise("tiny", {"width": 5}, TASK, 1)
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), again.parameters(), strict=True))
    with pytest.raises(ValueError, match="'heigth'"):
        registry.build("tiny", {"heigth": 5}, task=TASK)


def test_the_catalogue_does_not_load_the_builder(install: Install) -> None:
    install("potstill_test_b")
    assert "tiny" in architectures.CATALOGUE
    assert "potstill_test_b_nets" not in sys.modules


def test_without_a_package_there_is_no_such_row() -> None:
    with pytest.raises(ValueError, match="unknown architecture 'tiny'"):
        architectures.find("tiny")


def test_a_name_that_is_taken_is_refused(install: Install) -> None:
    install("potstill_test_c", name="mlp")
    with pytest.raises(architectures.PluginError, match="'mlp' is in the catalogue twice"):
        architectures.find("cnn-digits")


def test_two_packages_with_one_name_are_refused(install: Install) -> None:
    install("potstill_test_d")
    install("potstill_test_e", own=())
    with pytest.raises(architectures.PluginError, match="'tiny' is in the catalogue twice"):
        len(architectures.CATALOGUE)


@pytest.mark.parametrize(
    ("row", "attribute", "message"),
    [
        ("import no_such_module_anywhere\n", "tiny", "cannot be loaded: No module named"),
        ("other = 1\n", "tiny", "cannot be loaded: .*has no attribute 'tiny'"),
        ("tiny = 'resnet'\n", "tiny", "must name an object of type"),
        (ROW.replace("{builder}", "not a path"), "tiny", "must read 'package.module:function'"),
        (ROW.replace(', builder="{package}_nets:{builder}"', ""), "tiny", "needs builder="),
        (ROW.replace('"classifier"', '"transformer"'), "tiny", "role 'transformer'"),
        (ROW.replace("{name}", "Tiny Net"), "tiny", "name 'Tiny Net'"),
    ],
)
def test_a_broken_row_is_named_with_its_package(install: Install, row: str, attribute: str, message: str) -> None:
    install("potstill_test_f", row=row, attribute=attribute)
    with pytest.raises(architectures.PluginError, match=f"'potstill_test_f'.*{message}"):
        architectures.find("mlp")


@pytest.mark.parametrize(("builder", "message"), [("missing", "cannot be loaded"), ("nothing", "made a NoneType")])
def test_a_broken_builder_is_named(install: Install, builder: str, message: str) -> None:
    install("potstill_test_g", builder=builder)
    with pytest.raises(ValueError, match=f"'potstill_test_g_nets:{builder}'.*{message}"):
        registry.build("tiny", {}, task=TASK)
