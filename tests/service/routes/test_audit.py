"""The audit log: every change an operator can make is in it, once, with who and from where; and nothing changes it."""

import re
from collections.abc import Iterator
from concurrent.futures import wait
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import DatabaseError

from contract.audit import first_break
from service.operations.ledger import audit
from service.persistence.tables import AuditRow
from tests.service.conftest import SettingsMaker
from tests.service.world import World

from .test_roles import _routes

ROOT = Path(__file__).parents[3]
# Each route that changes something, and what it leaves in the log. A new route belongs here, or among the silent ones.
ACTIONS = {
    ("POST", "/v1/federations"): "federation.create",
    ("POST", "/v1/federations/{}/start"): "federation.start",
    ("POST", "/v1/federations/{}/pause"): "federation.pause",
    ("POST", "/v1/federations/{}/resume"): "federation.resume",
    ("POST", "/v1/federations/{}/cancel"): "federation.cancel",
    ("POST", "/v1/federations/{}/rollback"): "federation.rollback",
    ("PATCH", "/v1/federations/{}/plan"): "federation.plan",
    ("POST", "/v1/federations/{}/predict"): "federation.predict",
    ("POST", "/v1/federations/{}/join-token"): "federation.join-token",
    ("POST", "/v1/federations/{}/clients"): "client.enrol",
    ("DELETE", "/v1/federations/{}/clients/{}"): "client.revoke",
    ("PUT", "/v1/federations/{}/clients/{}/prototype"): "client.assign",
    ("POST", "/v1/federations/{}/clients/{}/token"): "client.reissue",
    ("PUT", "/v1/declaration"): "client.declare",
    ("DELETE", "/v1/federations/{}"): "federation.delete",
    ("PUT", "/v1/federations/{}/retention"): "federation.retention",
    ("POST", "/v1/rounds/{}/close"): "round.close",
    ("POST", "/v1/models"): "model.import",
    ("POST", "/v1/models/{}/promote"): "model.promote",
    ("POST", "/v1/networks"): "network.create",
    ("DELETE", "/v1/networks/{}"): "network.delete",
    ("POST", "/v1/datasets"): "dataset.create",
    ("DELETE", "/v1/datasets/{}"): "dataset.delete",
    ("POST", "/v1/jobs/{}/cancel"): "job.cancel",
    ("POST", "/v1/jobs/{}/retry"): "job.retry",
    ("POST", "/v1/tokens"): "token.create",
    ("DELETE", "/v1/tokens/{}"): "token.revoke",
    ("POST", "/v1/token/rotate"): "token.rotate",
    ("POST", "/v1/session"): "session.begin",
    ("DELETE", "/v1/session"): "session.end",
}
SILENT = {
    ("POST", "/v1/federations/draft"),  # changes nothing
    # what devices deliver has rows of its own, which name the device
    ("POST", "/v1/rounds/{}/heartbeat"),
    ("POST", "/v1/staging"),
    ("PUT", "/v1/rounds/{}/update"),
    ("PUT", "/v1/rounds/{}/secure/keys"),
    ("PUT", "/v1/rounds/{}/secure/shares"),
    ("PUT", "/v1/rounds/{}/secure/confirmation"),
    ("PUT", "/v1/rounds/{}/secure/revelation"),
    ("PUT", "/v1/federations/{}/discriminator"),
    ("PUT", "/v1/federations/{}/gan"),
}


@pytest.fixture(params=["sqlite", "postgresql"])
def world(request: pytest.FixtureRequest, make_settings: SettingsMaker, world_of: type[World]) -> Iterator[World]:
    url = None if request.param == "sqlite" else request.getfixturevalue("postgres")
    made = world_of(make_settings(database_url=url))
    yield made
    made.close()


def log(world: World, query: str = "") -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = world.ok("GET", f"/v1/audit?limit=500{query}")["items"]
    return items


def test_every_route_that_changes_something_says_what_it_leaves_in_the_log(shared: World) -> None:
    changing = {
        (method, path)
        for method, path in _routes(shared.app)
        if path.startswith("/v1/") and method not in ("GET", "HEAD", "OPTIONS") and not path.startswith("/v1/uploads")
    }
    assert changing == set(ACTIONS) | SILENT
    written = set()
    for file in (ROOT / "service" / "operations").rglob("*.py"):
        written |= set(re.findall(r'\brecord\(\s*session,\s*"([a-z.-]+)"', file.read_text()))
    assert set(ACTIONS.values()) <= written


def test_what_was_done_is_there_with_who_and_from_where(world: World) -> None:
    ann = world.ok("POST", "/v1/tokens", json={"name": "ann", "role": "operator"})
    made = world.site.request(
        "POST", "/v1/federations", token=ann["token"], json=world.body(), headers={"X-Request-Id": "mine-1"}
    ).json()
    (row,) = log(world, "&actor=ann")
    assert (row["actor_id"], row["role"], row["address"]) == (ann["id"], "operator", "test")
    assert (row["action"], row["target"], row["federation_id"]) == ("federation.create", made["id"], made["id"])
    assert (row["request_id"], row["outcome"], row["detail"]["name"]) == ("mine-1", "done", made["name"])
    assert datetime.now(UTC) - datetime.fromisoformat(row["at"]) < timedelta(minutes=1)
    first = log(world)[-1]
    assert (first["seq"], first["action"], first["role"], first["address"]) == (
        1,
        "token.create",
        "command-line",
        "local",
    )
    text_ = str(log(world))
    assert ann["token"] not in text_
    assert made["join_token"] not in text_


def test_what_was_refused_or_answered_again_leaves_nothing(world: World) -> None:
    before = len(log(world))
    body, headers = world.body(), {"Idempotency-Key": "k"}
    for _ in range(3):
        assert world.op("POST", "/v1/federations", json=body, headers=headers).status_code == 201
    assert world.op("POST", "/v1/federations", json=body).status_code == 409
    assert world.op("POST", "/v1/federations", json=world.body(seed=-1)).status_code == 422
    assert len(log(world)) == before + 1


def test_the_log_is_read_by_pages_and_filters(world: World) -> None:
    fed = world.create()
    device = world.enrol(fed, "a")
    world.ok("POST", f"/v1/federations/{fed.id}/clients/{device.id}/token")
    world.op("DELETE", f"/v1/federations/{fed.id}/clients/{device.id}")
    actions = [row["action"] for row in log(world)]
    assert actions == ["client.revoke", "client.reissue", "client.enrol", "federation.create", "token.create"]
    assert [row["action"] for row in log(world, "&oldest_first=true")] == actions[::-1]
    assert [row["action"] for row in log(world, "&action=client.")] == actions[:3]
    assert [row["action"] for row in log(world, "&action=client.enrol")] == ["client.enrol"]
    assert [row["action"] for row in log(world, f"&federation={fed.id}&action=federation.create")] == actions[3:4]
    assert [row["role"] for row in log(world, f"&target={device.id}&action=client.enrol")] == ["join"]
    assert log(world, "&since=2100-01-01T00:00:00Z") == []
    assert log(world, "&until=2100-01-01T00:00:00Z&outcome=refused") == []
    paged, after = [], ""
    for _ in range(5):
        page = world.ok("GET", f"/v1/audit?limit=1{after}")
        paged += [row["action"] for row in page["items"]]
        after = f"&after={page['next']}"
    assert paged == actions
    assert page["next"] is None
    for wrong in ("after=x", "since=yesterday", "limit=0", "who=me"):
        assert world.op("GET", f"/v1/audit?{wrong}").status_code == 422


def test_rows_written_at_the_same_moment_are_one_chain(world: World) -> None:
    fed = world.create()
    begun = [
        world.site.begin(
            "POST", f"/v1/federations/{fed.id}/clients", token=fed.join_token, json={"name": f"d{i}", "num_samples": 1}
        )
        for i in range(12)
    ] + [world.site.begin("POST", "/v1/tokens", token=world.operator, json={"name": f"t{i}"}) for i in range(12)]
    assert not wait(begun, timeout=60).not_done
    assert {future.result().status_code for future in begun} == {201}
    rows = log(world, "&oldest_first=true")
    assert [row["seq"] for row in rows] == list(range(1, 27))
    assert first_break(rows) is None


def test_a_row_that_was_changed_or_taken_out_is_found(world: World) -> None:
    for name in "abc":
        world.ok("POST", "/v1/tokens", json={"name": name})
    rows = log(world, "&oldest_first=true")
    assert first_break(rows) is None
    changed = [dict(row) for row in rows]
    changed[1]["actor_name"] = "somebody else"
    assert first_break(changed) == (2, "was changed: its hash does not fit what it says")
    assert first_break(rows[:1] + rows[2:]) == (3, "follows 1: rows are missing")
    assert first_break(rows[1:]) is None  # retention took the oldest


def test_the_database_refuses_changes(world: World) -> None:
    for statement in ("UPDATE audit SET actor_name = 'x'", "DELETE FROM audit"):
        with pytest.raises(DatabaseError, match="audit log"), world.store.write() as session:
            session.execute(text(statement))
    assert len(log(world)) == 1


@pytest.mark.parametrize(("places", "removed"), [((-1, 0), 2), ((3, 4), 0)], ids=["before", "behind"])
def test_retention_removes_what_is_old_and_keeps_the_newest(
    world: World, places: tuple[int, int], removed: int
) -> None:
    """Old rows go unless a younger one comes before them: a clock that was wrong must not leave a gap in the chain."""
    with world.store.write() as session:
        audit.record(session, "token.create", "new")
    with world.store.write() as session:
        newest = session.scalars(select(AuditRow).order_by(AuditRow.seq.desc()).limit(1)).one()
        assert newest.seq == 2
        values = {c.name: getattr(newest, c.name) for c in AuditRow.__table__.columns}
        at = datetime.now(UTC) - timedelta(days=50)  # rows cannot be made older
        session.add_all(AuditRow(**{**values, "seq": place, "at": at}) for place in places)
    with world.store.write() as session:
        assert audit.forget(session, 400) == 0
    with world.store.write() as session:
        assert audit.forget(session, 40) == removed
    assert len(log(world)) == 4 - removed


def test_a_change_that_is_rolled_back_leaves_no_row(world: World) -> None:
    with pytest.raises(RuntimeError), world.store.write() as session:
        audit.record(session, "token.create", "x")
        raise RuntimeError
    assert len(log(world)) == 1
