"""How many samples a device has: what it declared bounds what its updates tell of; operators see it change."""

from typing import Any

import httpx
import pytest

from contract.wire.devices import Declaration
from service.domain.errors import DomainError
from service.domain.principal import Principal
from service.operations.fleet import declarations
from service.persistence.tables import ClientRow
from tests.service.world import Fed, World

from ..world import refused


def declare(world: World, fed: Fed, name: str, **body: Any) -> httpx.Response:
    return world.site.request("PUT", "/v1/declaration", token=fed.devices[name].token, json=body)


def client(world: World, fed: Fed, name: str) -> dict[str, Any]:
    items = world.ok("GET", f"/v1/federations/{fed.id}/clients")["items"]
    found: dict[str, Any] = next(each for each in items if each["name"] == name)
    return found


def test_an_update_that_tells_of_more_samples_than_were_declared_is_refused(world: World) -> None:
    fed = world.running()
    response = world.push(fed, "a", world.update(fed, num_samples="10000000"))
    problem = response.json()
    assert refused(response) == (422, "invalid-field")
    assert (problem["field"], problem["expected"], problem["actual"]) == ("num_samples", 10, 10_000_000)
    assert "PUT /v1/declaration" in problem["detail"]
    assert world.updates() == 0
    assert world.push(fed, "a", world.update(fed, num_samples="9")).status_code == 201, "fewer are fine"


def test_a_resumable_upload_is_held_to_the_same(world: World) -> None:
    fed = world.running()
    body, token = world.update(fed, num_samples="11"), fed.devices["a"].token
    tus = {"Tus-Resumable": "1.0.0", "Upload-Length": str(len(body)), "Content-Type": "application/offset+octet-stream"}
    made = world.site.request("POST", "/v1/uploads", token=token, body=body, headers=tus)
    upload = made.headers["Location"].rpartition("/")[2]
    response = world.push(fed, "a", b"", url=f"/v1/rounds/{world.round(fed)['id']}/update?upload={upload}")
    assert (refused(response), response.json()["field"]) == ((422, "invalid-field"), "num_samples")


def test_a_device_that_declares_more_may_send_more_and_operators_see_it(world: World) -> None:
    fed = world.running()
    before = client(world, fed, "a")
    assert (before["num_samples"], before["enrolled_samples"], before["declared_at"]) == (10, 10, None)
    for _ in "12":
        shown = declare(world, fed, "a", num_samples=15)
        assert (shown.status_code, shown.json()["num_samples"], shown.json()["enrolled_samples"]) == (200, 15, 10)
    assert world.push(fed, "a", world.update(fed, num_samples="15")).status_code == 201
    after = client(world, fed, "a")
    assert (after["num_samples"], after["enrolled_samples"]) == (15, 10)
    assert after["declared_at"] is not None
    events = world.ok("GET", f"/v1/federations/{fed.id}/events?format=json")["items"]
    told = [each["data"] for each in events if each["kind"] == "client.declared"]
    assert [(each["client"], each["previous"], each["num_samples"]) for each in told] == [("a", 10, 15)]
    lines = world.ok("GET", "/v1/audit?action=client.declare")["items"]
    assert [(line["actor_id"], line["detail"]) for line in lines] == [
        (fed.devices["a"].id, {"num_samples": 15, "previous": 10})
    ]


def test_the_federations_limit_holds_for_enrolments_declarations_and_updates(world: World) -> None:
    fed = world.running(rounds={"max_samples_per_client": 12})
    response = declare(world, fed, "a", num_samples=13)
    assert (refused(response), response.json()["field"]) == ((422, "invalid-field"), "num_samples")
    assert client(world, fed, "a")["num_samples"] == 10
    assert declare(world, fed, "a", num_samples=12).status_code == 200
    response = world.push(fed, "a", world.update(fed, num_samples="13"))
    assert "above this federation's 12" in response.json()["detail"]
    assert world.push(fed, "a", world.update(fed, num_samples="12")).status_code == 201


def test_what_has_counted_is_answered_again_when_fewer_were_declared_since(world: World) -> None:
    fed = world.running()
    body = world.update(fed, num_samples="10")
    assert world.push(fed, "a", body).status_code == 201
    assert declare(world, fed, "a", num_samples=5).status_code == 200
    assert world.push(fed, "a", body).status_code == 200
    assert refused(world.push(fed, "b", world.update(fed, num_samples="11"))) == (422, "invalid-field")


def test_counts_per_class_go_with_the_number(world: World) -> None:
    fed = world.create(recipe={"name": "feddisco"}, rounds={"min_clients": 1})
    world.enrol(fed, "a", label_counts=[4, 3, 3])
    response = declare(world, fed, "a", num_samples=12)
    assert (refused(response), response.json()["field"]) == ((422, "invalid-field"), "label_counts")
    response = declare(world, fed, "a", num_samples=12, label_counts=[4, 3, 3])
    assert "sum to 10" in response.json()["detail"]
    assert declare(world, fed, "a", num_samples=12, label_counts=[4, 3, 5]).status_code == 200


def test_nothing_is_declared_to_a_federation_that_is_over_and_by_nobody_but_devices(world: World) -> None:
    fed = world.running()
    assert world.op("PUT", "/v1/declaration", json={"num_samples": 3}).status_code == 403
    world.ok("POST", f"/v1/federations/{fed.id}/cancel")
    assert refused(declare(world, fed, "a", num_samples=20)) == (409, "invalid-transition")


def test_a_declaration_that_a_revocation_overtook_brings_nothing_back(world: World) -> None:
    fed = world.create(recipe={"name": "feddisco"}, rounds={"min_clients": 1})
    device = world.enrol(fed, "a", label_counts=[4, 3, 3])
    caller = Principal("device", device.id, federation_id=fed.id)
    world.ok("DELETE", f"/v1/federations/{fed.id}/clients/{device.id}?forget=true")
    late = Declaration(num_samples=12, label_counts=[4, 4, 4])
    with pytest.raises(DomainError) as caught, world.store.write() as session:
        declarations.declare(session, caller, late)
    assert caught.value.kind == "unauthorized"
    with world.store.read() as session:
        row = session.get_one(ClientRow, device.id)
        assert (row.num_samples, row.label_counts) == (10, None)


@pytest.mark.parametrize("samples", [0, -1, True, "12", 1.5, 2**41])
def test_numbers_that_are_none(shared: World, samples: Any) -> None:
    fed = shared.create()
    shared.enrol(fed, "a")
    assert refused(declare(shared, fed, "a", num_samples=samples)) == (422, "invalid-field")
