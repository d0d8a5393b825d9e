"""The grid: each file gets its verdict, and a refusal leaves nothing behind."""

import httpx
import pytest

from tests.conformance.adapter import Adapter, Session
from tests.conformance.case import Case
from tests.conformance.files import like, matrix, sound, vector
from tests.conformance.grid import CASES

REFUSED = [case for case in CASES if 200 not in case.statuses]
TAKEN = [case for case in CASES if case.statuses == (200,)]
EITHER = [case for case in CASES if 200 in case.statuses and len(case.statuses) > 1]


def right(case: Case, response: httpx.Response) -> bool:
    return response.status_code in case.statuses or (200 in case.statuses and response.is_success)


def names(case: Case, session: Session) -> list[str]:
    schema = session.schema
    places = {"matrix": matrix(schema), "vector": vector(schema), "last": list(schema)[-1]}
    return [text.format(**places) if "{" in text else text if like(schema, text) else text for text in case.named]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_it_is_refused_and_leaves_nothing(open_round: Session, case: Case) -> None:
    before = open_round.model()
    response = open_round.send(0, case.make(open_round.schema, open_round.notes(0)), case.headers)
    assert right(case, response), f"{case.what}: {response.status_code} {response.text[:500]}"
    assert "problem+json" in response.headers.get("content-type", ""), "a reason that a program can read"
    for name in names(case, open_round):
        assert name in response.text, f"{case.what}: the answer does not name {name!r}"
    assert open_round.answered() == 0
    assert open_round.model() == before


def test_after_all_of_that_a_good_update_counts(open_round: Session) -> None:
    assert open_round.send(0, sound(open_round.schema, open_round.notes(0))).is_success
    assert open_round.answered() == 1


@pytest.mark.parametrize("case", TAKEN, ids=lambda case: case.name)
def test_it_is_taken(taking: list[Session], case: Case) -> None:
    session = taking[0]
    client = TAKEN.index(case)
    response = session.send(client, case.make(session.schema, session.notes(client)), case.headers)
    assert response.is_success, response.text


@pytest.mark.parametrize("case", EITHER, ids=lambda case: case.name)
def test_it_is_taken_whole_or_refused(taking: list[Session], case: Case) -> None:
    """What a service may decide either way; never an error of its own, never half of the file."""
    session, client = taking[0], len(TAKEN) + EITHER.index(case)
    before = session.answered()
    response = session.send(client, case.make(session.schema, session.notes(client)), case.headers)
    assert right(case, response), f"{case.what}: {response.status_code} {response.text[:500]}"
    if not response.is_success:
        for name in names(case, session):
            assert name in response.text
    assert session.answered() == before + response.is_success


@pytest.fixture(scope="module")
def taking(adapter: Adapter) -> list[Session]:
    """A round with a client for each file that may be taken, and one more, so that it stays open."""
    return [adapter.open(len(TAKEN) + len(EITHER) + 1)]
