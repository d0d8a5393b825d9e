"""Networks that are documents, from their registration to models that are made again: the real worker."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contract.networks import shelf
from contract.nn.graphs.module import GraphNetwork
from potstill.replay import bundles
from potstill.replay.run import replay
from potstill.replay.sources import Bundle
from tests.contract.networks.documents import changed, layers, weights
from tests.service.conftest import SettingsMaker
from tests.service.plant import Plant
from tests.service.world import TASK, Fed, World, refused

pytestmark = pytest.mark.timeout(300)
STEPS = {"schedule": {"steps": 3, "batch_size": 8}}
NETS: dict[str, dict[str, Any]] = {
    "ward": layers([2, 5, 3], norm=True),
    "disc": layers([2, 4, 1], "discriminator"),
    "gen": layers([3, 4, 2], "generator", end="tanh"),
    "critic": layers([2, 4, 1], "discriminator", head="out"),
    "small": layers([2, 4, 128, 3], head="head"),
    "large": layers([2, 9, 128, 3], head="head"),
}


@pytest.fixture(scope="module")
def plant(make_settings: SettingsMaker, world_of: type[World]) -> Iterator[Plant]:
    made = Plant(world_of(make_settings(device="cpu", torch_threads=1)))
    for name, document in NETS.items():
        register(made.world, name, document)
    yield made
    made.close()


def register(world: World, name: str, document: dict[str, Any], seed: int = 1) -> dict[str, Any]:
    body = world.forge.pack(weights(document, seed))
    model = world.ok("POST", "/v1/models", body=body)
    found: dict[str, Any] = world.ok("POST", f"/v1/networks?name={name}&initial_model={model['id']}", json=document)
    return found


def prototypes(*names: str, **more: Any) -> list[dict[str, Any]]:
    return [{"name": name, "architecture": f"net:{name}", **more} for name in names]


def inputs_of(plant: Plant, fed: Fed) -> dict[str, str]:
    """Return what the newest round was made from that is a network."""
    document = plant.world.ok("GET", f"/v1/rounds/{plant.world.round(fed)['id']}/provenance")["document"]
    return {each["name"]: each["digest"] for each in document["inputs"] if each.get("kind") == "network"}


def test_a_federation_distils_and_measures_it_and_all_is_made_again(plant: Plant) -> None:
    fed = plant.begin(
        {"name": "feddf", "options": STEPS}, prototypes=prototypes("ward"), test=True, seed=1, rounds={"total": 1}
    )
    plant.go_on(fed)
    network = plant.world.ok("GET", "/v1/networks/ward")
    shown = plant.world.show(fed)
    assert shown["prototypes"][0]["architecture"] == network["architecture"]
    assert shown["prototypes"][0]["initial_model"] == network["initial_model"]
    assert [index for index, _ in shown["accuracies"]] == [1]
    assert inputs_of(plant, fed) == {"ward": network["digest"]}
    reports = plant.again(fed)
    assert {report.verdict for report in reports} == {"equal"}


def test_an_average_needs_no_torch_and_its_statistics_are_averaged(plant: Plant) -> None:
    fed = plant.begin({"name": "fedavg"}, prototypes=prototypes("ward"), rounds={"total": 1})
    plant.go_on(fed)
    assert plant.world.show(fed)["state"] == "finished"


def test_fedgo_takes_discriminator_generator_and_critic_of_ones_own(plant: Plant) -> None:
    generator = {"architecture": "net:gen", "options": {}, "critic_architecture": "net:critic", "critic_options": {}}
    stage = {"plan": {"architecture": "net:disc", "options": {}}, "generator": {**generator, "steps": 2}}
    fed = plant.begin({"name": "fedgo-small", "options": {"discriminators": stage, **STEPS}})
    plant.go_on(fed)
    assert {report.verdict for report in plant.again(fed)} == {"equal"}
    models = plant.world.ok("GET", f"/v1/models?federation={fed.id}")["items"]
    assert {m["architecture"] for m in models if m["role"] == "generator"} == {
        plant.world.ok("GET", "/v1/networks/gen")["architecture"]
    }


def test_fedet_shares_heads_that_are_named_so(plant: Plant) -> None:
    options: dict[str, Any] = {"recipe": {"name": "fedet", "options": STEPS}, "prototypes": prototypes("small")}
    fed = plant.begin(**options, server_model={"architecture": "net:large"})
    plant.go_on(fed)
    assert plant.world.show(fed)["state"] == "finished"
    data = {"unlabeled": plant.world.dataset()["id"]}
    other = plant.world.body(**options, datasets=data, server_model={"architecture": "net:ward"})
    response = plant.world.op("POST", "/v1/federations", json=other)
    assert "whose features are named and whose tensors `head.*` alone" in response.json()["detail"]


def test_statistics_of_its_batch_norm_are_computed_anew(plant: Plant) -> None:
    schedule = {"steps": 3, "batch_size": 8, "swa": {"cycle": 1, "start": 0}}
    recipe = {"name": "fedbe", "options": {"schedule": schedule}}
    fed = plant.begin(recipe, prototypes=prototypes("ward"), rounds={"total": 1})
    plant.go_on(fed)
    assert plant.world.show(fed)["state"] == "finished"


def test_a_bundle_is_replayed_where_nobody_knows_the_network(plant: Plant, tmp_path: Path) -> None:
    fed = plant.begin({"name": "feddf", "options": STEPS}, prototypes=prototypes("ward"), rounds={"total": 1})
    plant.go_on(fed)
    path = tmp_path / "round.tar"
    path.write_bytes(plant.world.op("GET", f"/v1/rounds/{plant.world.round(fed)['id']}/bundle").content)
    (tmp_path / "out").mkdir()
    publication = bundles.unpack(path, tmp_path / "out")
    digests = {each["digest"] for each in publication.document["inputs"] if each.get("kind") == "network"}
    assert [bundles.place(tmp_path / "out", digest).exists() for digest in digests] == [True]
    bundle = Bundle(path)
    assert replay(bundle.publication, bundle, plant.computers).verdict == "equal"
    bundle.close()


def test_a_network_that_torch_refuses_fails_the_first_job_by_its_node(plant: Plant) -> None:
    bent = changed("train.nodes.1.args.1", {"tensor": "last.weight"}, layers([2, 3, 3]))
    bent = changed("train.nodes.3.args.1", {"tensor": "l0.weight"}, bent)
    register(plant.world, "bent", bent)
    fed = plant.begin({"name": "fedavg"}, prototypes=prototypes("bent"))
    shown = plant.world.show(fed)
    assert shown["state"] == "failed"
    assert "train: in node 'l0' (aten.linear.default)" in shown["detail"]


def test_a_prediction_has_its_network_at_hand(plant: Plant) -> None:
    fed = plant.begin({"name": "fedavg"}, prototypes=prototypes("ward"), rounds={"total": 1})
    plant.go_on(fed)
    data = plant.world.dataset()
    made = plant.world.ok("POST", f"/v1/federations/{fed.id}/predict", json={"dataset": data["id"]})
    plant.runner.drain()
    assert plant.world.op("GET", f"/v1/predictions/{made['id']}/file").status_code == 200


def test_a_deleted_network_is_told(plant: Plant) -> None:
    world = plant.world
    assert refused(world.op("DELETE", "/v1/networks/ward"))[1] == "in-use"
    register(world, "spare", layers([2, 7, 3]))
    fed = world.create(prototypes=prototypes("spare"))
    assert refused(world.op("DELETE", "/v1/networks/spare")) == (409, "in-use")
    world.ok("POST", f"/v1/federations/{fed.id}/cancel")
    world.ok("DELETE", f"/v1/federations/{fed.id}")
    assert world.op("DELETE", "/v1/networks/spare").status_code == 204
    assert refused(world.op("GET", "/v1/networks/spare")) == (404, "not-found")


def test_what_is_on_the_shelf_is_the_document_that_its_name_says(plant: Plant) -> None:
    network = plant.world.ok("GET", "/v1/networks/ward")
    text = plant.world.op("GET", network["url"]).content
    path = plant.world.blobs.scratch.temp()
    path.write_bytes(text.replace(b"0.1", b"0.2"))
    shelf.place(network["architecture"], shelf.Files(path))
    with pytest.raises(ValueError, match="is another network's"):
        shelf.document(network["architecture"])
    path.write_bytes(text)
    assert GraphNetwork(shelf.document(network["architecture"])).state_dict().keys() == weights(NETS["ward"]).keys()
    assert TASK["num_classes"] == 3
