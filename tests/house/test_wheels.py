"""Two wheels of one tree: everything, and what a device needs. Each is built and installed as a user would."""

import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import contract

from .requirements import ROOT, closure, foreign_modules, project, without

DEVICE = ROOT / "deploy" / "device"
SOURCES = ("contract", "client_sdk", "service", "worker", "potstill", "migrations", "deploy/device")
COMMAND_LINE = {"typer", "rich"}
IMPORT_ALL = """
import importlib, pkgutil
import client_sdk, contract
for package in (client_sdk, contract):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if ".secure." not in module.name and module.name != "contract.otel":  # what needs an extra
            importlib.import_module(module.name)
from client_sdk import train_and_push
"""
FIND = "import importlib.util, sys; print([n for n in sys.argv[1:] if importlib.util.find_spec(n)])"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheels of a copy of the tree, by distribution."""
    tree, dist = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    for name in SOURCES:
        leave = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
        shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=leave)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    options = ["--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--quiet"]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", str(dist), ".", "./deploy/device"],
        cwd=tree, check=True,
    )  # fmt: skip
    return {path.name.split("-")[0]: path for path in dist.glob("*.whl")}


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The interpreter of an empty environment that finds this one's packages for what a wheel depends on."""
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    interpreter = tmp_path / "env" / "bin" / "python"
    found = subprocess.run(
        [interpreter, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    # A line adds a folder without running the .pth files in it: an editable installation there stays out.
    (Path(found.stdout.strip()) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return interpreter


@pytest.fixture
def run(python: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run that interpreter away from the tree; `missing` is a folder on its path."""

    def call(*words: str, missing: Path | None = None) -> subprocess.CompletedProcess[str]:
        env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)} | ({"PYTHONPATH": str(missing)} if missing else {})
        return subprocess.run([python, *words], cwd=tmp_path, env=env, capture_output=True, text=True)

    return call


def install(python: Path, *wheels: Path) -> None:
    for wheel in wheels:
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-compile", "--quiet"]
        subprocess.run([*pip, str(wheel)], check=True, capture_output=True)


def files(wheel: Path) -> dict[str, int]:
    """The files of a wheel outside its metadata, with their checksums."""
    with zipfile.ZipFile(wheel) as archive:
        return {each.filename: each.CRC for each in archive.infolist() if ".dist-info/" not in each.filename}


def metadata(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return archive.read(name).decode()


def test_both_have_one_version(wheels: dict[str, Path]) -> None:
    assert wheels.keys() == {"potstill", "potstill_device"}
    for wheel in wheels.values():
        assert re.findall("^Version: (.*)$", metadata(wheel), re.MULTILINE) == [contract.__version__]


def test_the_device_wheel_holds_two_packages_as_the_whole_one_does(wheels: dict[str, Path]) -> None:
    device, whole = files(wheels["potstill_device"]), files(wheels["potstill"])
    assert {name.split("/")[0] for name in device} == {"client_sdk", "contract"}
    assert device == {name: crc for name, crc in whole.items() if name.split("/")[0] in {"client_sdk", "contract"}}
    assert {"client_sdk/py.typed", "contract/py.typed"} <= device.keys()
    with zipfile.ZipFile(wheels["potstill_device"]) as archive:
        assert not [each for each in archive.infolist() if stat.S_ISLNK(each.external_attr >> 16)]
        assert [name for name in archive.namelist() if name.endswith("/licenses/LICENSE")]


def test_the_device_wheel_asks_for_the_base_and_the_client() -> None:
    whole, device = project(), project(DEVICE)
    wanted = {*whole["dependencies"], *whole["optional-dependencies"]["client"]}
    assert set(device["dependencies"]) == {text for text in wanted if re.split("[<>=]", text)[0] not in COMMAND_LINE}
    for extra, brings in device["optional-dependencies"].items():
        assert brings == whole["optional-dependencies"][extra]
    assert device["requires-python"] == whole["requires-python"]


def test_a_device_needs_nothing_else(
    wheels: dict[str, Path], python: Path, run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    install(python, wheels["potstill_device"])
    found = run("-c", FIND, "client_sdk", "contract", "service", "worker", "potstill", "migrations")
    assert found.stdout.strip() == "['client_sdk', 'contract']", found.stderr
    missing = without(foreign_modules(closure(set(), DEVICE)), tmp_path / "missing")
    imported = run("-c", IMPORT_ALL, missing=missing)
    assert imported.returncode == 0, imported.stderr


def test_the_whole_wheel_holds_the_server_and_its_command(
    wheels: dict[str, Path], python: Path, run: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    install(python, wheels["potstill"])
    found = run("-c", FIND, "client_sdk", "contract", "service", "worker", "potstill", "migrations")
    assert found.stdout.strip() == "['client_sdk', 'contract', 'service', 'worker', 'potstill', 'migrations']"
    assert run("-m", "potstill", "--version").stdout.strip() == f"potstill {contract.__version__}"


def test_both_in_one_environment_work_at_one_version_and_are_refused_at_two(
    wheels: dict[str, Path], python: Path, run: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    install(python, wheels["potstill"], wheels["potstill_device"])
    assert run("-m", "potstill", "config").returncode == 0
    [about] = python.parents[1].glob("lib/*/site-packages/potstill_device-*.dist-info/METADATA")
    about.write_text(about.read_text().replace(f"Version: {contract.__version__}", "Version: 99.0"))
    refused = run("-m", "potstill", "config")
    assert refused.returncode == 1
    assert "potstill-device 99.0 is installed in this environment too" in refused.stderr


def test_a_device_wheel_beside_a_clone_is_refused(
    wheels: dict[str, Path], python: Path, run: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    install(python, wheels["potstill_device"])
    [lines] = python.parents[1].glob("lib/*/site-packages/dependencies.pth")
    lines.write_text(f"{ROOT}\n{lines.read_text()}")  # as `pip install -e` does
    refused = run("-m", "potstill", "config")
    assert refused.returncode == 1
    assert "and one overwrote the other's" in refused.stderr
