"""A user's folder may hold a `service.py` or a `contract.py`: our programs and the SDK do not look at it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from contract.installation import install
from contract.programs import PACKAGES, ROOT, environment, python, shadowed

ASK = """
import contract, service, worker, migrations
print(*(module.__file__ for module in (contract, service, worker, migrations)))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder with modules of the names of all our packages."""
    for name in ("service.py", "worker.py", "contract.py", "migrations/__init__.py"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("raise SystemExit('a module of the user was imported')\n")
    (tmp_path / "service").mkdir()  # a folder of data: a namespace package to Python
    return tmp_path


@pytest.mark.parametrize("path", ["", ":", ".", "{folder}", "{folder}:{root}", "{root}"])
def test_children_find_our_packages_whatever_lies_in_the_folder(folder: Path, path: str) -> None:
    told = environment({"PYTHONPATH": path.format(folder=folder, root=ROOT), "PATH": "/usr/bin:/bin"})
    done = subprocess.run(python("-c", ASK), cwd=folder, env=told, capture_output=True, text=True, check=True)
    assert all(Path(file).is_relative_to(ROOT) for file in done.stdout.split())


def test_the_command_line_does_not_look_into_the_current_folder(folder: Path) -> None:
    told = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    for program in (["-m", "potstill", "config"], ["-c", "from potstill.cli import main; main()", "config"]):
        done = subprocess.run([sys.executable, *program], cwd=folder, env=told, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), program


def test_a_script_beside_a_contract_of_its_own_imports_the_sdk(folder: Path) -> None:
    script = folder / "device.py"
    script.write_text("import client_sdk, contract.wire.devices\nprint(contract.__file__)\n")
    done = _script(script)
    assert done.stdout.strip() == str(ROOT / "contract" / "__init__.py")


def test_a_script_that_imported_its_own_contract_is_told_which_file_to_rename(folder: Path) -> None:
    (folder / "contract.py").write_text("MINE = 1\n")
    script = folder / "device.py"
    script.write_text("import contract\nassert contract.MINE\nimport client_sdk\n")
    said = _script(script).stderr.splitlines()[-1]
    assert said.startswith("ImportError") and str(folder / "contract.py") in said and "another name" in said


def _script(script: Path) -> "subprocess.CompletedProcess[str]":
    told = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, str(script)], cwd=script.parent, env=told, capture_output=True, text=True)


def test_what_shadows(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert shadowed(folder) and not shadowed(ROOT) and not shadowed(tmp_path_factory.mktemp("empty"))
    assert set(PACKAGES) <= {each.name for each in ROOT.iterdir()}


def test_a_wheel_s_errors_name_the_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert install("client", "privacy") == "pip install '.[client,privacy]' in the clone"
    info = tmp_path / "potstill_device-9.1.dist-info"
    info.mkdir()
    said = ("Metadata-Version: 2.1", "Name: potstill-device", "Version: 9.1", "Provides-Extra: privacy", "")
    (info / "METADATA").write_text("\n".join(said))
    monkeypatch.setattr("contract.installation.ROOT", tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert install("client", "privacy") == (
        "pip install './potstill_device-9.1-py3-none-any.whl[privacy]' where the wheel is"
    )
    assert install("client") == "pip install './potstill_device-9.1-py3-none-any.whl' where the wheel is"
