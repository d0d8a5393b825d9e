"""Networks that are documents over HTTP: registered once, held against weights and tasks, removed when not needed."""

import hashlib
from typing import Any

import pytest
from sqlalchemy import select

from contract.networks import checks
from contract.networks.document import canonical, digest_of
from service.persistence.tables import EventRow, FederationRow
from tests.contract.networks.documents import changed, layers, text, weights
from tests.service.world import World, refused

NET = layers([2, 4, 3])


def imported(world: World, document: dict[str, Any] = NET, seed: int = 1) -> str:
    model = world.ok("POST", "/v1/models", body=world.forge.pack(weights(document, seed)))
    return str(model["id"])


def registered(world: World, document: dict[str, Any] = NET, **query: str) -> dict[str, Any]:
    name = query.pop("name", None) or world.fresh_name("net")
    given = "".join(f"&{key}={value}" for key, value in query.items())
    found: dict[str, Any] = world.ok("POST", f"/v1/networks?name={name}{given}", json=document)
    return found


def test_a_network_is_described_and_its_document_is_its_one_form(world: World) -> None:
    model = imported(world)
    made = registered(world, initial_model=model)
    document = canonical(checks.read(text(NET)))
    assert made["digest"] == digest_of(document)
    assert made["architecture"] == f"net:{made['digest']}"
    assert (made["facts"]["parameters"], made["facts"]["output"], made["facts"]["features"]) == (27, [3], True)
    for word in (made["id"], made["name"], made["architecture"], made["digest"], f"net:{made['name']}"):
        assert world.ok("GET", f"/v1/networks/{word}") == made
    answer = world.op("GET", made["url"])
    assert answer.content == document
    assert answer.headers["etag"] == f'"{made["digest"]}"'
    assert world.op("GET", made["url"], headers={"If-None-Match": answer.headers["etag"]}).status_code == 304
    first = world.op("GET", f"/v1/networks/{made['id']}/weights").content
    assert f"sha256-{hashlib.sha256(first).hexdigest()}" == world.ok("GET", f"/v1/models/{model}")["digest"]
    assert world.ok("GET", "/v1/networks")["items"] == [made]


def test_the_same_is_the_same_and_another_is_refused(world: World) -> None:
    model, name = imported(world), world.fresh_name("net")
    made = registered(world, name=name, initial_model=model)
    before = world.files()
    shuffled = dict(reversed(list(NET.items())))
    assert registered(world, shuffled, name=name) == made
    assert registered(world, name=name, initial_model=model) == made
    other = layers([2, 5, 3])
    answer = world.op("POST", f"/v1/networks?name={name}", json=other)
    assert refused(answer) == (409, "name-taken")
    answer = world.op("POST", "/v1/networks?name=another", json=NET)
    assert refused(answer) == (409, "name-taken")
    assert "take its name" in answer.json()["detail"]
    again = world.op("POST", f"/v1/networks?name={name}&initial_model={imported(world, seed=2)}", json=NET)
    assert refused(again) == (409, "name-taken")
    assert len(world.files()) == len(before) + 1  # the second weights


BAD: list[tuple[dict[str, Any], str, str]] = [
    (changed("train.nodes.1.op", "aten.as_strided.default", NET), "train.l0", "not on the list"),
    (changed("train.nodes.1.args.0", {"node": "last"}, NET), "train.l0", "no earlier node"),
    (changed("version", 3, NET), "version", "Input should be 1"),
    (changed("tensors.0.dtype", "object", NET), "tensors.0.dtype", "Input should be"),
    (changed("pickle", "x", NET), "pickle", "there is no such field"),
    (changed("train.nodes.1.kwargs", {"device": "cuda"}, NET), "train.l0", "'device' is none of"),
]


@pytest.mark.parametrize(("document", "field", "said"), BAD, ids=[each[1] + each[2][:9] for each in BAD])
def test_a_bent_document_is_refused_and_leaves_nothing(
    shared: World, document: dict[str, Any], field: str, said: str
) -> None:
    before = shared.files()
    answer = shared.op("POST", "/v1/networks?name=bent", json=document)
    assert refused(answer)[0] == 422
    assert answer.json()["field"] == field
    assert said in answer.json()["detail"]
    assert shared.files() == before
    assert shared.op("GET", "/v1/networks/bent").status_code == 404


def test_weights_of_another_network_are_refused_by_their_tensor(world: World) -> None:
    model = imported(world, layers([2, 7, 3]))
    answer = world.op("POST", f"/v1/networks?name=n&initial_model={model}", json=NET)
    assert refused(answer) == (422, "invalid-field")
    assert "tensor 'l0.weight' is F32 [7, 2], wanted is F32 [4, 2]" in answer.json()["detail"]
    assert refused(world.op("POST", "/v1/networks?name=n&initial_model=mdl_x", json=NET)) == (404, "not-found")


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "unknown": ({"architecture": "net:none"}, "prototypes.0.architecture", "there is no network 'net:none'"),
    "options": ({"options": {"width": 3}}, "prototypes.0.options.width", "there is no such field"),
    "samples": ({"task": {"input": {"shape": [5]}}}, "prototypes.0.architecture", "reads float32 [2]; the task's"),
    "type": ({"task": {"input": {"shape": [2], "dtype": "int64"}}}, "prototypes.0.architecture", "reads float32 [2]"),
    "classes": ({"task": {"num_classes": 7}}, "prototypes.0.architecture", "gives [3] for each sample, and [7]"),
    "weights": ({"initial_model": "OTHER"}, "prototypes.0.initial_model", "has not the network's tensors"),
    "privacy": ({"local": {"privacy": {"noise_multiplier": 1.0}}}, "prototypes.0.architecture", "a graph has none"),
    "role": ({"server": "net:disc"}, "server_model.initial_model", "registered without first weights"),
    "recipe": ({"recipe": {"name": "fedma"}}, "prototypes.0.architecture", "the layers of 'net:ward'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_federation_that_does_not_suit_its_network_is_refused(world: World, case: str) -> None:
    changes, field, said = WRONG[case]
    model = imported(world)
    registered(world, name="ward", initial_model=model)
    registered(world, layers([2, 4, 1], "discriminator"), name="disc")
    prototype: dict[str, Any] = {"architecture": changes.get("architecture", "net:ward")}
    prototype |= {key: changes[key] for key in ("options", "initial_model") if key in changes}
    if prototype.get("initial_model"):
        prototype["initial_model"] = imported(world, layers([2, 9, 3]))
    body = world.body(prototypes=[prototype])
    body["task"] = body["task"] | changes.get("task", {})
    body |= {key: changes[key] for key in ("local", "recipe") if key in changes}
    if "server" in changes:
        body["server_model"] = {"architecture": changes["server"]}
    answer = world.op("POST", "/v1/federations", json=body)
    assert refused(answer)[0] == 422, answer.text
    assert answer.json()["field"] == field, answer.text
    assert said in answer.json()["detail"]


def test_a_network_without_weights_starts_from_a_model_that_is_named(world: World) -> None:
    registered(world, name="bare")
    body = world.body(prototypes=[{"architecture": "net:bare"}])
    answer = world.op("POST", "/v1/federations", json=body)
    assert answer.json()["field"] == "prototypes.0.initial_model"
    model = imported(world)
    made = world.ok("POST", "/v1/federations", json=world.body(prototypes=[
        {"architecture": "net:bare", "initial_model": model}
    ]))  # fmt: skip
    assert made["prototypes"][0]["initial_model"] == model
    assert refused(world.op("GET", "/v1/networks/bare/weights")) == (404, "not-found")


def test_imported_weights_may_say_that_they_are_a_networks(world: World) -> None:
    made = registered(world, name="ward")
    body = world.forge.pack(weights(NET))
    model = world.ok("POST", "/v1/models?architecture=net:ward", body=body)
    assert model["architecture"] == made["architecture"]
    assert refused(world.op("POST", "/v1/models?architecture=net:none", body=body)) == (422, "invalid-field")


def test_networks_are_listed_with_the_architectures_for_those_who_may_see_them(world: World) -> None:
    registered(world, name="ward")
    token = world.ok("POST", "/v1/tokens", json={"name": "v", "role": "viewer"})["token"]
    names = [{each["name"] for each in world.site.request("GET", "/v1/architectures", token=t).json()}
             for t in (None, token, world.operator)]  # fmt: skip
    assert [("net:ward" in each, "mlp" in each) for each in names] == [(False, True), (True, True), (True, True)]
    assert world.site.request("GET", "/v1/architectures", token="pst_op_wrong").status_code == 401


def test_a_device_reads_the_networks_of_its_own_federation_alone(world: World) -> None:
    model = imported(world)
    mine = registered(world, name="mine", initial_model=model)
    registered(world, layers([2, 8, 3]), name="other")
    fed = world.create(prototypes=[{"architecture": "net:mine"}])
    device = world.enrol(fed, "d")
    for path in ("", "/document", "/weights"):
        assert world.site.request("GET", f"/v1/networks/mine{path}", token=device.token).status_code == 200
        answer = world.site.request("GET", f"/v1/networks/other{path}", token=device.token)
        assert refused(answer) == (404, "not-found")
    card = world.site.request("GET", f"/v1/federations/{fed.id}/card", token=fed.join_token).json()
    assert card["prototypes"][0]["architecture"] == mine["architecture"]


def test_a_federation_is_shown_with_the_names_that_people_call_its_networks(world: World) -> None:
    made = registered(world, name="ward", initial_model=imported(world))
    fed = world.create(prototypes=[{"architecture": "net:ward"}])
    with world.store.write() as session:
        session.get_one(FederationRow, fed.id).detail = f"{made['architecture']}: conv; net:sha256-{'0' * 64}: other"
    shown = world.ok("GET", f"/v1/federations/{fed.id}")
    assert shown["networks"] == {made["architecture"]: "net:ward"}
    assert shown["prototypes"][0]["architecture"] == made["architecture"]
    assert shown["detail"] == f"net:ward: conv; net:sha256-{'0' * 64}: other"


def test_it_goes_with_the_last_federation_that_names_it(world: World) -> None:
    model = imported(world)
    made = registered(world, name="ward", initial_model=model)
    fed = world.create(prototypes=[{"architecture": made["architecture"]}])
    answer = world.op("DELETE", "/v1/networks/ward")
    assert refused(answer) == (409, "in-use")
    world.ok("POST", f"/v1/federations/{fed.id}/cancel")
    world.ok("DELETE", f"/v1/federations/{fed.id}")
    assert world.op("DELETE", f"/v1/networks/{made['id']}").status_code == 204
    assert made["digest"] not in {f"sha256-{file.rsplit('/', 1)[-1]}" for file in map(str, world.files())}
    with world.store.read() as session:
        kinds = [
            kind for kind in session.scalars(select(EventRow.kind).order_by(EventRow.sequence)) if "network" in kind
        ]
    assert kinds == ["network.added", "network.deleted"]
    actions = [each["action"] for each in world.ok("GET", "/v1/audit?action=network.&oldest_first=true")["items"]]
    assert actions == ["network.create", "network.delete"]
