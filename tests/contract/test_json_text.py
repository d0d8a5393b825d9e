"""A key stands once in an object, wherever JSON comes from outside; and there is one wording of what is wrong."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

import contract
from contract.bodies import Body
from contract.faults import faults_of
from contract.json_text import RepeatedKey, read_json
from contract.notes import Note
from contract.tensors import TensorError
from contract.tensors.header import Header, parse_digests
from contract.wire import changes, devices, federations  # noqa: F401  # define all bodies
from potstill.console import CliError, parse_options, read_object

ROOT = Path(contract.__file__).parents[1]
PRODUCT = [
    path for room in ("contract", "service", "worker", "client_sdk", "potstill") for path in (ROOT / room).rglob("*.py")
]


@pytest.mark.parametrize(
    "text", ['{"a": 1, "a": 1}', '{"b": [{"a": 1, "c": 2, "a": {}}]}', b'{"x": {"a": 1, "\\u0061": 2}}']
)
def test_a_key_that_stands_twice_is_named(text: str | bytes) -> None:
    with pytest.raises(RepeatedKey, match="the key 'a' is there twice"):
        read_json(text)


def test_a_key_is_told_short_and_plain() -> None:
    key = "\u202e" + "k" * 5000
    with pytest.raises(RepeatedKey) as caught:
        read_json(json.dumps({key: 1})[:-1] + f', "{key}": 2}}')
    assert len(caught.value.key) < 120 and caught.value.key.isprintable()


def test_what_is_no_json_is_an_error_of_values() -> None:
    for text in ("{", "[" * 100_000, b"\xff", "1" * 5000):
        with pytest.raises(ValueError):
            read_json(text)
    assert read_json('[{"a": 1}, {"a": 2}]') == [{"a": 1}, {"a": 2}]


def test_metadata_of_files_says_a_key_once() -> None:
    values = {"num_samples": "1", "base_model": "mdl_1", "metrics": '{"loss": 1, "loss": 2}'}
    with pytest.raises(ValidationError) as caught:
        devices.UpdateMetadata.read(values)
    [fault] = faults_of(caught.value)
    assert fault == ("metrics", "the key 'loss' is there twice; keep one of them")
    header = Header({}, {"potstill.digests": '{"w": "0", "w": "1"}'})
    with pytest.raises(TensorError, match="the key 'w' is there twice"):
        parse_digests(header)


def test_the_command_line_says_which_key(tmp_path: Path) -> None:
    file = tmp_path / "spec.json"
    file.write_text('{"name": "a", "rounds": {"total": 1, "total": 2}}', encoding="utf-8")
    with pytest.raises(CliError, match="spec.json: the key 'total' is there twice"):
        read_object(file, "a body")
    with pytest.raises(CliError, match="--local optimizer: the key 'lr' is there twice"):
        parse_options(['optimizer={"kind": "sgd", "lr": 1, "lr": 2}'], "--local")


def _below(kind: type[BaseModel]) -> set[type[BaseModel]]:
    return {each for found in kind.__subclasses__() for each in {found} | _below(found)}


def test_every_class_of_the_contract_reads_strictly() -> None:
    ours = {each for each in _below(BaseModel) if each.__module__.partition(".")[0] == "contract"}
    assert Note in ours and {each.__name__ for each in ours if not issubclass(each, Body)} == set()
    newer: dict[str, Any] = {"path": "a", "note": "b", "why": "c", "since": 1}
    assert str(Note.model_validate(newer)) == "a: b; c"
    with pytest.raises(ValidationError):
        Note.model_validate(newer | {"why": 1})


def test_faults_are_worded_in_one_place() -> None:
    """What a validator found is told by `contract.faults`; JSON from outside is read by `contract.json_text`."""
    told = {str(path.relative_to(ROOT)) for path in PRODUCT if re.search(r"error\.errors\(", path.read_text("utf-8"))}
    assert told == {"contract/faults.py", "service/api/problems.py"}
    outside = ("contract/tensors", "contract/wire", "service/api", "service/config", "potstill/co", "potstill/commands")
    read = [str(path.relative_to(ROOT)) for path in PRODUCT if "json.loads(" in path.read_text("utf-8")]
    assert [path for path in read if path.startswith(outside)] == []
