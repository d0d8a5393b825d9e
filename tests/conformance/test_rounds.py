"""What comes out of a round: the right mean, whole or not at all, whatever the order and whoever disturbs it."""

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from tests.conformance.adapter import Adapter, Session
from tests.conformance.files import TYPES, arrays, like, matrix, poked, sound, vector


def filled(session: Session, value: float, counter: int = 5) -> dict[str, np.ndarray]:
    """Return a model whose floats are all `value`."""
    made = {}
    for name, (dtype, shape) in session.schema.items():
        made[name] = np.full(shape, value if dtype[0] == "F" else counter, TYPES[dtype])
    return made


def update(session: Session, client: int, values: Mapping[str, np.ndarray], num_samples: int = 10) -> bytes:
    return sound(session.schema, session.notes(client, num_samples), dict(values))


def published(session: Session) -> dict[str, np.ndarray]:
    model = session.finish()
    assert model is not None, "the round was not published"
    return load(model)


def test_the_mean_is_weighted_by_samples_of_those_who_sent(adapter: Adapter) -> None:
    """1 sample of [0, 8], 3 samples of [4, 0], and one who was asked and sent nothing: [3, 2]."""
    session = adapter.open(3)
    name = vector(session.schema)
    for client, samples, pair in ((0, 1, (0.0, 8.0)), (1, 3, (4.0, 0.0))):
        values = arrays(session.schema, client)
        values[name].reshape(-1)[:2] = pair
        assert session.send(client, update(session, client, values, samples)).is_success
    assert published(session)[name].reshape(-1)[:2].tolist() == [3.0, 2.0]


def test_buffers_are_averaged_and_integers_stay_integers(adapter: Adapter) -> None:
    session = adapter.open(2)
    mean, var, count = (like(session.schema, part) for part in ("running_mean", "running_var", "num_batches_tracked"))
    for client, samples, values in ((0, 1, (0.0, 1.0, 7)), (1, 3, (4.0, 5.0, 9))):
        made = arrays(session.schema, client)
        for name, value in zip((mean, var, count), values, strict=True):
            made[name][...] = value
        assert session.send(client, update(session, client, made, samples)).is_success
    model = published(session)
    assert model[mean].tolist() == [3.0] * model[mean].size
    assert model[var].tolist() == [4.0] * model[var].size
    assert (model[count].dtype, model[count].shape) == (np.dtype(np.int64), ())
    assert 7 <= int(model[count]) <= 9


def test_the_order_of_arrival_changes_no_bit(adapter: Adapter) -> None:
    results = []
    for order in ((0, 1, 2), (2, 0, 1)):
        session = adapter.open(3)
        for client in order:
            body = update(session, client, arrays(session.schema, 10 + client), 10 + client)
            assert session.send(client, body).is_success
        results.append(published(session))
    for name, values in results[0].items():
        assert values.tobytes() == results[1][name].tobytes(), name


def test_the_update_of_one_client_alone_is_the_model(adapter: Adapter) -> None:
    session = adapter.open(1)
    values = arrays(session.schema, 3)
    assert session.send(0, update(session, 0, values)).is_success
    model = published(session)
    for name, value in values.items():
        assert model[name].tobytes() == value.tobytes(), name


def test_refused_updates_change_nothing(adapter: Adapter) -> None:
    """A client sends NaN, then a tensor that could be broadcast, then what is right: only that counts."""
    session = adapter.open(2)
    name, notes = matrix(session.schema), session.notes(0)
    assert session.send(0, poked(session.schema, notes, name, np.nan)).status_code == 422
    assert session.send(0, poked(session.schema, notes, name, -np.inf)).status_code == 422
    for client, value in ((0, 2.0), (1, 4.0)):
        assert session.send(client, update(session, client, filled(session, value))).is_success
    model = published(session)
    assert all((model[key] == 3.0).all() for key, (dtype, _) in session.schema.items() if dtype == "F32")


def test_a_client_that_sends_twice_counts_once(adapter: Adapter) -> None:
    session = adapter.open(2)
    body = update(session, 0, filled(session, 0.0))
    first, again = session.send(0, body), session.send(0, body)
    assert first.is_success
    assert again.is_success or again.status_code == 409
    other = session.send(0, update(session, 0, filled(session, 0.0, counter=6)))
    assert other.status_code in (200, 201, 409), "refused, or in place of the first one"
    assert session.answered() == 1
    assert session.send(1, update(session, 1, filled(session, 1.0))).is_success
    assert (published(session)[matrix(session.schema)] == 0.5).all()


@pytest.mark.parametrize("samples", [0, -3, 2**62])
def test_impossible_sample_counts_are_refused(open_round: Session, samples: int) -> None:
    before = open_round.answered()
    assert open_round.send(1, update(open_round, 1, arrays(open_round.schema), samples)).status_code == 422
    assert open_round.answered() == before


def test_an_update_of_another_model_is_refused(open_round: Session) -> None:
    notes = open_round.notes(1)
    stale = {key: value if key == "num_samples" else value[:-1] + "0x" for key, value in notes.items()}
    if stale == notes:
        pytest.skip("this service does not have the base model in the file's metadata")
    assert open_round.send(1, sound(open_round.schema, stale)).status_code in (404, 409, 422)


def test_a_sum_that_overflows_is_never_published_as_infinity(adapter: Adapter) -> None:
    session = adapter.open(3)
    for client in range(3):
        assert session.send(client, update(session, client, filled(session, 3e38), 1000)).is_success
    model = session.finish()
    if model is not None:
        assert all(np.isfinite(value).all() for value in load(model).values())


def test_a_body_that_does_not_match_its_digest_is_refused(open_round: Session) -> None:
    body = update(open_round, 1, arrays(open_round.schema))
    digest = base64.b64encode(hashlib.sha256(body + b"x").digest()).decode()
    response = open_round.send(1, body, {"Content-Digest": f"sha-256=:{digest}:"})
    assert response.status_code in (400, 422)


@pytest.mark.parametrize("metrics", ['{"loss": NaN}', '{"loss": "nan"}', '{"loss": 1e999}'])
def test_figures_that_are_no_numbers_do_not_break_what_reads_them(open_round: Session, metrics: str) -> None:
    notes: dict[str, Any] = open_round.notes(1) | {"metrics": metrics}
    response = open_round.send(1, sound(open_round.schema, notes))
    assert response.is_success or response.status_code in (409, 422)
    assert open_round.answered() >= 0  # the round can still be read
    assert open_round.model()
