"""Bodies: what is refused by name, what a newer service may add, times, names, unions."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

from contract.wire import catalogue, devices, federations, problems, rounds
from contract.wire.common import Digest, Name, Page, Request, Response, Timestamp

MODELS = [
    value
    for module in (catalogue, devices, federations, rounds)
    for value in vars(module).values()
    if isinstance(value, type)
    and issubclass(value, BaseModel)
    and value.__module__ == module.__name__
    and value.__doc__
]
NAME = TypeAdapter(Name)
TASK = {"num_classes": 3, "input": {"shape": [1, 8, 8]}}


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.__name__)
def test_requests_refuse_what_they_do_not_know_and_answers_ignore_it(model: type[BaseModel]) -> None:
    extra = model.model_config.get("extra")
    assert extra == ("ignore" if issubclass(model, Response) else "forbid")


@pytest.mark.parametrize("name", ["a", "ward-7", "Klinik Süd", "x" * 100, "日本", "a b", "...", "it's"])
def test_names_that_are_taken(name: str) -> None:
    assert NAME.validate_python(name) == name


@pytest.mark.parametrize(
    "name",
    ["", " a", "a ", "a/b", "a\\b", "..", ".", "../x", "a\x00b", "a\nb", "\x7f", "<b>", "a>b", "x" * 101, "\ud800", 3],
)
def test_names_that_are_not(name: Any) -> None:
    with pytest.raises(ValidationError):
        NAME.validate_python(name)


@pytest.mark.parametrize("sign", "\x85\x9b\u2028\u202e\u200b\ufeff\U000e0041")
def test_names_hold_nothing_that_is_not_seen(sign: str) -> None:
    """Such characters steer a terminal, turn the direction of a line, or make two names look alike."""
    with pytest.raises(ValidationError):
        NAME.validate_python(f"ward{sign}7")


def test_joiners_are_part_of_some_scripts_and_no_names_by_themselves() -> None:
    assert NAME.validate_python("می\u200cخواهم")
    with pytest.raises(ValidationError):
        NAME.validate_python("\u200c\u200d")


@given(st.text(max_size=120))
def test_no_name_is_a_path_or_markup(name: str) -> None:
    try:
        taken = NAME.validate_python(name)
    except ValidationError:
        return
    assert taken == name == name.strip()
    assert not set(name) & set("/\\<>\0\n\r\t")
    assert name not in ("", ".", "..")


class _Moment(BaseModel):
    at: Timestamp


def test_times_travel_in_utc_with_a_z() -> None:
    zone = timezone(timedelta(hours=-5))
    text = _Moment(at=datetime(2026, 1, 2, 22, 4, 5, 678901, tzinfo=zone)).model_dump_json()
    assert json.loads(text) == {"at": "2026-01-03T03:04:05.678Z"}
    assert _Moment.model_validate_json(text).at == datetime(2026, 1, 3, 3, 4, 5, 678000, tzinfo=UTC)
    assert _Moment(at=datetime(2026, 1, 1)).at.tzinfo is UTC


def test_digests() -> None:
    adapter = TypeAdapter(Digest)
    assert adapter.validate_python("sha256-" + "0" * 64)
    for bad in ("", "sha256-" + "0" * 63, "sha256-" + "G" * 64, "md5-" + "0" * 64, "sha256-" + "0" * 64 + "\n"):
        with pytest.raises(ValidationError):
            adapter.validate_python(bad)


def test_an_assignment_is_told_apart_by_its_action() -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(devices.Assignment)
    common = {
        "federation_id": "fed_1",
        "federation_name": "f",
        "state": "running",
        "task": TASK,
        "prototype": {"architecture": "mlp"},
        "seed": 1,
        "client_name": "a",
    }
    wait = adapter.validate_python({**common, "action": "wait", "reason": "because", "new_in_v2": 1})
    assert isinstance(wait, devices.WaitAssignment)
    assert isinstance(adapter.validate_python({**common, "action": "done"}), devices.DoneAssignment)
    for body in ({**common, "action": "dance"}, common, {**common, "action": "train"}):
        with pytest.raises(ValidationError):
            adapter.validate_python(body)


def test_metadata_keeps_our_keys_and_leaves_others_alone() -> None:
    values = {"num_samples": "12", "base_model": "mdl_1", "format": "pt", "potstill.buffers": "[]"}
    parsed = devices.UpdateMetadata.read(values)
    assert (parsed.num_samples, parsed.base_model, parsed.metrics) == (12, "mdl_1", None)
    with pytest.raises(ValidationError):
        devices.UpdateMetadata.read(values | {"num_samples": "0"})


@pytest.mark.parametrize("field", ["loss", "accuracy", "seconds"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), "nan", "-inf"])
def test_figures_are_finite(field: str, value: Any) -> None:
    with pytest.raises(ValidationError):
        devices.UpdateMetrics.model_validate({field: value})


@pytest.mark.parametrize("model", [m for m in MODELS if issubclass(m, Request)], ids=lambda m: m.__name__)
def test_no_request_takes_a_number_that_is_not_finite(model: type[BaseModel]) -> None:
    assert model.model_config["allow_inf_nan"] is False


def test_a_problem_keeps_its_members() -> None:
    body = {"type": problems.TYPE_PREFIX + "invalid-tensors", "title": "t", "status": 422, "detail": "d", "tensor": "w"}
    problem = problems.Problem.model_validate(body)
    assert (problem.kind, problem.member("tensor"), problem.member("other")) == ("invalid-tensors", "w", None)
    assert problems.Problem.model_validate(body | {"type": "about:blank"}).kind == "about:blank"


def test_kinds_with_one_status_have_titles_of_their_own() -> None:
    titles = [kind.title for kind in problems.KINDS.values()]
    assert len(set(titles)) == len(titles)


def test_a_page_of_a_newer_service_is_read() -> None:
    page = Page[devices.ClientInfo].model_validate(
        {
            "items": [
                {
                    "id": "c",
                    "name": "a",
                    "prototype": "p",
                    "num_samples": 1,
                    "enrolled_at": "2026-01-01T00:00:00Z",
                    "new": 1,
                }
            ]
        }
    )
    assert page.next is None
    assert page.items[0].updates == 0


@pytest.mark.parametrize(
    "change",
    [
        {"shape": []},
        {"shape": [0]},
        {"shape": [1] * 6},
        {"shape": [3, 8, 8], "scale": [1.0, 2.0]},
        {"shape": [8], "dtype": "int64", "mean": [0.5]},
        {"shape": [10_000, 10_000]},
        {"shape": [2], "dtype": "float64"},
        {"shape": [2], "extra": 1},
    ],
)
def test_inputs_that_cannot_be(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        federations.InputSpec.model_validate(change)


def test_a_recipe_is_a_name_with_options_or_a_composition() -> None:
    base = {"name": "f", "task": TASK, "prototypes": [{"architecture": "mlp"}]}
    by_name = federations.FederationCreate.model_validate(
        base | {"recipe": {"name": "fedgo-small", "options": {"link": "sigmoid"}}}
    )
    assert isinstance(by_name.recipe, federations.RecipeChoice)
    whole = federations.FederationCreate.model_validate(
        base | {"recipe": {"name": "x", "fuse": {"kind": "uniform_mean"}}}
    )
    assert not isinstance(whole.recipe, federations.RecipeChoice)
