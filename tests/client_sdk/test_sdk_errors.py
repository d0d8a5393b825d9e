"""Problems become exceptions, one class a kind."""

import httpx
import pytest

from client_sdk import errors
from contract.wire.problems import KINDS, TYPE_PREFIX

REQUEST = httpx.Request("GET", "http://potstill.test/v1/x")


def answer(code: int, **body: object) -> httpx.Response:
    return httpx.Response(code, json=body, headers={"X-Request-Id": "req-9"}, request=REQUEST)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_class_of_its_own(kind: str) -> None:
    status, title = KINDS[kind]
    error = errors.from_response(
        answer(status, type=TYPE_PREFIX + kind, title=title, status=status, detail="do this", tensor="w")
    )
    assert type(error) is errors.ApiError.classes[kind]
    assert type(error) is not errors.ApiError
    assert (error.status, error.kind, error.detail, error.request_id) == (status, kind, "do this", "req-9")
    assert error.members == {"tensor": "w"}
    assert "do this" in str(error) and "req-9" in str(error)


def test_no_two_kinds_share_a_class() -> None:
    assert set(errors.ApiError.classes) == set(KINDS)
    assert len(set(errors.ApiError.classes.values())) == len(KINDS)


def test_a_kind_of_a_newer_service_is_still_an_api_error() -> None:
    error = errors.from_response(answer(418, type=TYPE_PREFIX + "teapot", title="T", status=418, detail="short"))
    assert type(error) is errors.ApiError
    assert error.kind == "teapot"


def test_a_page_of_a_proxy_is_an_api_error_that_asks_about_the_address() -> None:
    error = errors.from_response(httpx.Response(404, text="<html>", request=REQUEST))
    assert type(error) is errors.ApiError
    assert "address of a potstill service" in str(error)


def test_a_kind_cannot_get_a_second_class() -> None:
    with pytest.raises(TypeError, match="has a class already"):
        type("Again", (errors.ApiError,), {"problem_kind": "not-found"})


def test_the_tree_at_the_top_names_every_class() -> None:
    names = {
        cls.__name__ for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, errors.PotstillError)
    }
    missing = {name for name in names if name not in (errors.__doc__ or "")}
    assert missing == set()
