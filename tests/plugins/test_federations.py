"""Federations that use a package's choices: they run, say so, and are refused or halted by name where it is missing."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client_sdk import methods
from client_sdk.errors import MissingPackage
from contract.bodies import stored
from contract.federation import FederationConfig
from contract.local import LocalPlan
from contract.wire.federations import Federation
from potstill.commands.federation import body as create_body
from potstill.commands.spec import body_like
from potstill.console import CliError
from potstill.simulate.engine import Simulation
from service.api.start import CheckedStart
from tests.service.conftest import *  # noqa: F403 - its fixtures
from tests.service.conftest import SettingsMaker
from tests.service.plant import Plant
from tests.service.world import World, refused
from tests.simulate.small import LOCAL, body, config
from worker.pipeline import run
from worker.specs import InitializeSpec, JobFailure, NetworkRef, PackagedChoice, PrototypeSpec

from .conftest import Packages, Rows, files, points

pytestmark = pytest.mark.timeout(600)  # a loaded machine is no defect
WEIGH = {"kind": "acme-margin", "power": 2.0}
FUSE = {"kind": "acme-midrange"}
RECIPE = {"name": "feddf", "options": {"weigh": WEIGH, "fuse": FUSE, "schedule": {"steps": 3, "batch_size": 8}}}
SMOOTH = {"objective": {"kind": "acme-smooth", "share": 0.2}}
LACKS = "is of the package acme-rules 1.0, which is not installed here; pip install 'acme-rules==1.0', and start again"


def test_a_simulation_runs_all_three_and_repeats_itself(acme: Packages, tmp_path: Path) -> None:
    found = []
    for name in ("one", "two"):
        request = body(RECIPE, local=LOCAL | SMOOTH)
        history = Simulation(config(tmp_path / name, body_=request)).run()
        found.append([each.digests for each in history.rounds])
    assert found[0] == found[1]
    own = {"name": "feddf", "options": {"schedule": {"steps": 3, "batch_size": 8}}}
    plain = Simulation(config(tmp_path / "plain", own)).run()
    assert [each.digests for each in plain.rounds] != found[0]


# ------------------------------------------------------------------------------------------------------- the service
@pytest.fixture
def plant(packages: Packages, make_settings: SettingsMaker) -> Iterator[Plant]:
    """A service and its worker, whose child process begins with the first job."""
    made = Plant(World(make_settings(device="cpu", torch_threads=1)))
    yield made
    made.close()


def test_recipes_list_what_packages_add_to_them(acme: Packages, world: World) -> None:
    from service.api.routes import catalogue

    catalogue._recipes.cache_clear()
    listed = {each["name"]: each["added"] for each in world.ok("GET", "/v1/recipes")}
    catalogue._recipes.cache_clear()
    assert [each["kind"] for each in listed["fedavg"]] == ["acme-midrange", "acme-smooth", "acme-brier"]
    margin = listed["feddf"][0]
    assert (margin["slot"], margin["kind"], margin["package"]) == ("distil.weigh", "acme-margin", "acme-rules 1.0")
    assert margin["summary"].endswith("to a power (Doe et al. 2031, eq. 4).")
    assert margin["options"]["properties"]["power"]["exclusiveMinimum"] == 0


def test_a_federation_is_made_again_and_another_version_is_told(packages: Packages, plant: Plant) -> None:
    packages.acme()
    fed = plant.begin(RECIPE, names="abc", rounds={"total": 1}, local=SMOOTH)
    shown = plant.world.show(fed)
    assert shown["composition"]["fuse"] == FUSE | {"package": "acme-rules 1.0"}
    assert shown["local"]["objective"]["package"] == "acme-rules 1.0"
    plant.go_on(fed)
    model = plant.world.round(fed, 1)["models"]["main"]
    document = plant.world.ok("GET", f"/v1/models/{model}/provenance")["document"]
    assert document["environment"]["plugins"]["fuse.acme-midrange"] == "acme-rules 1.0"
    assert document["spec"]["recipe"]["distil"]["weigh"]["package"] == "acme-rules 1.0"
    packages.remove()
    packages.acme("1.1")
    for report in plant.again(fed):
        assert report.verdict == "equal"
        assert "fuse.acme-midrange: acme-rules 1.0 then, acme-rules 1.1 now" in report.packages


def test_a_worker_without_the_package_ends_the_federation_before_a_device_trains(
    packages: Packages, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages.acme()
    monkeypatch.delenv("PYTHONPATH")  # the worker's child process does not see the package
    fed = plant.begin(RECIPE, names="ab", rounds={"total": 1})
    shown = plant.world.show(fed)
    (job,) = plant.world.ok("GET", f"/v1/jobs?federation={fed.id}")["items"]
    assert (shown["state"], job["kind"], job["error"]) == ("failed", "initialize", "missing_package")
    assert LACKS in job["detail"]
    assert plant.world.assignment(fed.devices["a"])["action"] == "done"


def test_a_federation_whose_package_is_gone_is_listed_shown_halted_and_deleted(acme: Packages, world: World) -> None:
    fed = world.running(("a", "b"), recipe={"name": "fedavg", "options": {"fuse": FUSE}}, rounds={"total": 3})
    shown = world.show(fed)
    for name in ("a", "b"):
        assert world.push(fed, name).status_code == 201
    acme.remove()
    _forget_configs()
    assert world.ok("GET", "/v1/federations")["items"][0]["state"] == "running"
    later = world.show(fed)
    assert later["composition"] == shown["composition"]
    assert later["waiting_for"] == f"fuse 'acme-midrange' {LACKS}"
    world.finish(world.claim(), {"main": world.forge.arrays(5)})  # a worker that still has it
    halted = world.show(fed)
    assert (halted["state"], halted["error"]) == ("paused", "missing_package")
    assert LACKS in halted["detail"]
    body = world.body(recipe=_told(shown["composition"]))
    assert refused(world.op("POST", "/v1/federations", json=body)) == (422, "invalid-field")
    assert world.op("PATCH", f"/v1/federations/{fed.id}/plan", json={"local": {"epochs": 2}}).status_code == 200
    gone = world.op("DELETE", f"/v1/federations/{fed.id}/clients/{fed.devices['a'].id}?forget=true")
    assert gone.status_code == 200, gone.text
    acme.acme()
    _forget_configs()
    assert world.ok("POST", f"/v1/federations/{fed.id}/resume")["state"] == "running"
    acme.remove()
    _forget_configs()
    world.ok("POST", f"/v1/federations/{fed.id}/cancel")
    assert world.show(fed)["waiting_for"] is None
    assert world.op("DELETE", f"/v1/federations/{fed.id}").is_success


def _forget_configs() -> None:
    """Be like a service that was restarted."""
    from service.operations.progress import reading

    reading._parsed.cache_clear()


def _told(composition: dict[str, Any]) -> dict[str, Any]:
    return composition | {"name": "mine"}


def test_the_operator_s_machine_needs_no_package(acme: Packages, world: World) -> None:
    told = world.body(recipe={"name": "mine", "fuse": FUSE}, local=SMOOTH)
    acme.remove()
    sent = create_body(told).model_dump(mode="json")
    assert sent["recipe"]["fuse"] == FUSE and sent["local"]["objective"] == SMOOTH["objective"]
    with pytest.raises(CliError, match="seed: Input should be a valid integer"):
        create_body(told | {"seed": "1"})
    acme.acme()
    made = world.ok("POST", "/v1/federations", json=sent)
    acme.remove()
    again = body_like(stored(Federation, json.dumps(made))).model_dump(mode="json")
    assert again["recipe"]["fuse"] == FUSE | {"package": "acme-rules 1.0"}


def test_the_service_does_not_start_with_a_package_that_cannot_be_taken_in(
    packages: Packages, rows: Rows, make_settings: SettingsMaker
) -> None:
    text = rows("from typing import Literal", "import no_such_module")
    packages.install("acme-rules", {"acme_rules/rows.py": text}, points())
    said: list[Any] = []

    async def start() -> None:
        heard = iter([{"type": "lifespan.startup"}])

        async def receive() -> Any:
            return next(heard)

        async def send(message: Any) -> None:
            said.append(message)

        await CheckedStart(_never, make_settings())({"type": "lifespan"}, receive, send)

    asyncio.run(start())
    assert [each["type"] for each in said] == ["lifespan.startup.failed"]
    assert said[0]["message"].startswith("package acme-rules 1.0, entry point 'distil.weigh.acme-margin'")


async def _never(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("the app inside was started")


# --------------------------------------------------------------------------------------------------------- the worker
def _first_job(folder: Path, packaged: list[PackagedChoice]) -> InitializeSpec:
    return InitializeSpec(
        seed=1,
        task=body().task,
        prototypes=[PrototypeSpec(name="main", network=NetworkRef(architecture="mlp", options={"hidden": [2]}))],
        packaged=packaged,
        output_dir=folder,
    )


@pytest.mark.parametrize(
    ("version", "kind", "words"),
    [
        ("1.0", "acme-midrange", ""),
        ("2.0", "acme-midrange", "the service has acme-rules 2.0, this worker acme-rules 1.0; install the same"),
        ("1.0", "acme-median", "'acme-median' is of the package acme-rules 1.0, which is not installed here"),
    ],
)
def test_the_first_job_looks_for_packages(acme: Packages, tmp_path: Path, version: str, kind: str, words: str) -> None:
    needed = [PackagedChoice(slot="fuse", kind=kind, package=f"acme-rules {version}")]
    if not words:
        assert list(run(_first_job(tmp_path / "job", needed), lambda _: None).models) == ["main"]
        return
    with pytest.raises(JobFailure, match=words) as caught:
        run(_first_job(tmp_path / "job", needed), lambda _: None)
    assert caught.value.code == "missing_package"
    assert not list((tmp_path / "job").iterdir())


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("@implements(FuseMidrange)\n", "", "'acme_rules.rules' has nothing below @implements(FuseMidrange)"),
        ("import numpy as np", "import no_such_module", "the module 'acme_rules.rules' cannot be loaded: No module"),
    ],
)
def test_a_package_without_its_function_is_named(
    packages: Packages, tmp_path: Path, old: str, new: str, words: str
) -> None:
    page = files()
    rules = page["acme_rules/rules.py"].replace(old, new)
    packages.install("acme-rules", page | {"acme_rules/rules.py": rules}, points())
    needed = [PackagedChoice(slot="fuse", kind="acme-midrange", package="acme-rules 1.0")]
    with pytest.raises(JobFailure) as caught:
        run(_first_job(tmp_path / "job", needed), lambda _: None)
    assert (caught.value.code, words in caught.value.detail) == ("missing_package", True), caught.value.detail


# --------------------------------------------------------------------------------------------------------- a device
def test_a_device_without_the_package_is_told_by_name(acme: Packages) -> None:
    told = LocalPlan.model_validate(SMOOTH).model_dump_json()
    methods.check(stored(LocalPlan, told))
    acme.remove()
    with pytest.raises(MissingPackage, match="local.objective: .*'acme-smooth' is of the package acme-rules 1.0"):
        methods.check(stored(LocalPlan, told))


def test_what_a_configuration_lacks(acme: Packages) -> None:
    text = FederationConfig(
        task=body().task,
        prototypes=body().prototypes,
        recipe={"name": "mine", "fuse": FUSE},  # type: ignore[arg-type]
        local=LocalPlan(),
        rounds=body().rounds,
        datasets={},  # type: ignore[arg-type]
    ).model_dump_json()
    assert stored(FederationConfig, text).lacking == ""
    acme.remove()
    assert stored(FederationConfig, text).lacking == f"fuse 'acme-midrange' {LACKS}"
