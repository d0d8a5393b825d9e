"""The measures of the house, on a made-up one: each finds what it is for, a passed bound fails the check."""

from pathlib import Path
from textwrap import dedent

import pytest

from tools.house import arrows, names, reach, sizes, touch
from tools.house.__main__ import main, measures
from tools.house.source import House

FILES = {
    "pyproject.toml": """
        [[tool.importlinter.contracts]]
        type = "layers"
        containers = ["service.operations"]
        layers = ["steer", "fleet | store"]
        """,
    "contract/local.py": """
        from typing import Literal

        class Sgd:
            kind: Literal["sgd"] = "sgd"

        class ProxObjective:
            kind: Literal["prox"] = "prox"

        class Noted:
            def __init_subclass__(cls):
                CHOICES.append(cls)

        class Chosen(Noted):
            pass

        CHOICES = []
        """,
    "contract/everything.py": "from contract.local import *\n",
    "contract/recipes/rows/rows.py": "from contract.local import ProxObjective\n",
    "contract/updates.py": 'CONTROL = "control."\n',
    "contract/registry.py": """
        def implements(choice):
            return lambda function: function
        """,
    "client_sdk/device.py": '''
        """control. is no name here."""
        import contract.registry
        from contract.updates import CONTROL

        def train(objective):
            return objective.kind == "prox", CONTROL, "control.main", f"send.{objective}"
        ''',
    "service/config.py": """
        class Settings:
            model_config = 1
            home: str = "."
            port: int = 1
        """,
    "service/operations/fleet/clients.py": "from service.operations.steer import gates\n",
    "service/operations/steer/gates.py": """
        from service.operations.store import models

        def disconnected(kind):
            return kind == "scaffold"
        """,
    "service/operations/store/models.py": "def find():\n    from service.operations.steer import gates\n",
    "worker/app.py": """
        from contract import everything
        from worker import parts
        from worker.parts import rules
        from worker.parts.rules import mean as average

        def run(job):
            average(job)
            job.step()
            parts.rules.dotted()
            everything.ProxObjective()
        """,
    "worker/parts/__init__.py": "",
    "worker/parts/rules.py": """
        from contract.local import ProxObjective, Sgd
        from contract.registry import implements

        def mean(values):
            return _sum(values) / Run(values).size

        def _sum(values):
            return sum(values)

        def dotted():
            return 1

        @implements(ProxObjective)
        def prox(values):
            return values

        def twin(values):
            # nobody but a test
            return _of_twin(values)

        def _of_twin(values):
            return values

        class Run:
            def __init__(self, values):
                self.size = len(values)

            def step(self):
                return self.size

            def replay(self):
                return 0

        TABLE = {Sgd: mean}
        """,
    "tests/test_rules.py": "from worker.parts.rules import TABLE, twin\n\ntwin([])\n",
    "potstill/cli.py": "",
    "tools/long.py": "def long():\n" + "    pass\n" * 70,
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text).lstrip("\n"))
    return tmp_path


@pytest.fixture
def house(root: Path) -> House:
    return House(root)


def test_what_only_tests_reach_is_found_and_what_is_registered_is_not(house: House) -> None:
    found = {each.package: each for each in reach.reach(house)}
    assert [each.name for each in found["worker.parts"].unreached] == ["twin", "_of_twin", "replay", "TABLE"]
    assert found["worker.parts"].unreached_lines == 3 + 2 + 2 + 1
    # six functions and three methods of two lines, a decorator, a comment, the rest of the class, the table
    assert found["worker.parts"].lines == 6 * 2 + 3 * 2 + 1 + 1 + 3 + 1
    # only the table names Sgd; Chosen is noted by its base, and Prox is reached through a module that takes all names
    assert [each.name for each in found["contract"].unreached] == ["Sgd"]


def test_a_method_is_reached_once_its_class_and_its_name_are(house: House, root: Path) -> None:
    (root / "worker/app.py").write_text("def run(job):\n    job.step()\n")
    names_ = [each.name for each in reach.reach(House(root))[0].unreached]
    assert {"mean", "Run", "step", "replay"} <= set(names_), "nobody makes a Run"
    assert "prox" not in names_


def test_a_class_that_is_registered_is_reached_and_its_methods_by_name(root: Path) -> None:
    lines = ("@implements(ProxObjective)", "class Rule:", "    def step(self): ...", "    def replay(self): ...")
    imports = "from contract.local import ProxObjective\nfrom contract.registry import implements\n"
    (root / "worker/parts/rules.py").write_text(imports + "\n".join(lines) + "\n")
    found = {each.package: each for each in reach.reach(House(root))}
    assert [each.name for each in found["worker.parts"].unreached] == ["replay"]


def test_files_that_know_a_choice_are_counted_by_class_and_by_kind(house: House) -> None:
    found = {each.name: each for each in touch.choices(house)}
    assert found["ProxObjective"].files == (
        "client_sdk/device.py",
        "contract/local.py",
        "worker/app.py",
        "worker/parts/rules.py",
    )
    assert found["Sgd"].files == ("contract/local.py", "worker/parts/rules.py")


def test_arrows_up_and_round_are_found_also_those_of_late_imports(house: House, root: Path) -> None:
    found = {each.package: each for each in arrows.arrows(house)}
    rooms = found["service.operations"]
    assert (rooms.rooms, rooms.arrows) == (3, 3)
    assert rooms.up == ("fleet -> steer", "store -> steer")
    assert rooms.round == ("steer -> store", "store -> steer")
    assert (found[""].up, found[""].round, found[""].arrows) == ((), (), 2)
    (root / "contract/updates.py").write_text("import worker.app\n")
    top = arrows.arrows(House(root))[0]
    assert top.up == ("contract -> worker",)
    assert top.round == ("contract -> worker", "worker -> contract")


def test_names_are_found_outside_their_place(house: House) -> None:
    assert names.wire_names(house) == ["client_sdk/device.py:6 'control.main'", "client_sdk/device.py:6 'send.'"]
    assert names.methods_in_service(house) == ['service/operations/steer/gates.py:4 return kind == "scaffold"']


def test_sizes_are_counted(house: House) -> None:
    assert sizes.settings(house) == ["home", "port"]
    assert sizes.functions(house)[0] == sizes.Sized(71, "tools/long.py:1 long")
    assert sizes.files(house)[0] == sizes.Sized(71, "tools/long.py")
    assert sizes.median_function(house) == 2


def test_a_measure_beyond_its_bound_fails_the_check(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--root", str(root)]) == 0
    assert main(["--root", str(root), "--check"]) == 1
    row = next(line for line in capsys.readouterr().out.splitlines() if "tests only: worker.parts" in line)
    assert row.split()[-7:] == ["8", "of", "24", "at", "most", "0", "BEYOND"]
    beyond = [each.name for each in measures(House(root)) if not each.holds]
    assert beyond == [
        "lines reached by tests only: worker.parts",
        "product files that know a rule of rounds or devices, median",
        "arrows up in service.operations (3 rooms, 3 arrows, 0 floors)",
        "arrows that go round in service.operations",
        "names that travel, outside contract.updates",
        "lines of service/ that name a method",
        "longest function",
    ]


def test_a_house_that_holds_passes_the_check(root: Path) -> None:
    for name in ("tools/long.py", "client_sdk/device.py", "service/operations/store/models.py"):
        (root / name).write_text("")
    for name in ("service/operations/steer/gates.py", "service/operations/fleet/clients.py"):
        (root / name).write_text("")
    (root / "worker/parts/rules.py").write_text("def mean(values):\n    return values\n")
    assert main(["--root", str(root), "--check"]) == 0


def test_this_house_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--root", str(Path(__file__).parents[2]), "--check"]) == 0, capsys.readouterr().out
    said = capsys.readouterr().out
    assert "arrows up in packages (7 rooms, " in said
