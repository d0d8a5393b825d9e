"""Token ids that a network does not know: the job names the set, the sample and the id, whatever the network is."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.networks import checks, shelf
from contract.networks.document import canonical, digest_of, name_of
from contract.networks.facts import facts_of
from contract.tensors import write_file
from contract.wire.federations import Task
from tests.contract.networks.documents import text
from worker.pipeline import run
from worker.specs import Datasets, InitializeSpec, JobFailure, NetworkRef, PredictSpec, PrototypeSpec

TASK = Task.model_validate({"num_classes": 2, "input": {"shape": [4], "dtype": "int64"}})
LSTM: dict[str, Any] = {"architecture": "lstm", "options": {"vocab_size": 10, "width": 3}}


def ids(path: Path, wrong: int) -> Path:
    values = np.ones((5, 4), np.int64)
    values[3, 2] = wrong
    write_file(path, {"inputs": values, "labels": np.array([0, 1, 0, 1, 0])})
    return path


@pytest.mark.parametrize("wrong", [10, -1])
@pytest.mark.parametrize("role", ["test", "validation", "unlabeled"])
def test_the_first_job_names_the_set_and_the_id(tmp_path: Path, role: str, wrong: int) -> None:
    sets = Datasets.model_validate({role: ids(tmp_path / "ids.safetensors", wrong)})
    prototype = PrototypeSpec(name="main", network=NetworkRef(**LSTM))
    spec = InitializeSpec(seed=0, task=TASK, prototypes=[prototype], datasets=sets, output_dir=tmp_path)
    words = rf"the {role} data set: sample 3 has the token id {wrong}; prototype 'main' \(lstm\) knows 10, 0 to 9"
    with pytest.raises(JobFailure, match=words) as caught:
        run(spec, lambda progress: None)
    assert caught.value.code == "bad_option"


def test_a_prediction_names_the_id(tmp_path: Path) -> None:
    path = ids(tmp_path / "ids.safetensors", 11)
    spec = PredictSpec(task=TASK, dataset=path, network=NetworkRef(**LSTM), output_dir=tmp_path)
    with pytest.raises(JobFailure, match="the predicted data set: sample 3 has the token id 11; model"):
        run(spec, lambda progress: None)


def read(indices: str) -> Any:
    """Return a document that embeds 7 ids: those of the input, or what another node makes of them."""
    nodes = [
        {"name": "same", "op": "aten.alias.default", "args": [{"node": "input"}]},
        {"name": "words", "op": "aten.embedding.default", "args": [{"tensor": "words.weight"}, {"node": indices}]},
        {"name": "mean", "op": "aten.mean.dim", "args": [{"node": "words"}, [1]]},
    ]
    graph = {"nodes": nodes, "output": "mean", "features": None}
    tensors = [{"name": "words.weight", "dtype": "float32", "shape": [7, 2], "kind": "parameter"}]
    whole = {"version": 1, "role": "classifier", "input": {"shape": [4], "dtype": "int64"}, "output": [2]}
    return checks.read(text(whole | {"tensors": tensors, "train": graph, "eval": graph}))


def test_a_document_says_how_many_ids_it_knows_where_it_embeds_them(tmp_path: Path) -> None:
    assert facts_of(read("input")).vocabulary == 7 and facts_of(read("same")).vocabulary is None
    document = read("input")
    name = name_of(digest_of(canonical(document)))
    shelf.know(name, facts_of(document))
    prototype = PrototypeSpec(name="main", network=NetworkRef(architecture=name))
    sets = Datasets(test=ids(tmp_path / "ids.safetensors", 7))
    (tmp_path / "net.json").write_bytes(canonical(document))
    shelf.place(name, shelf.Files(tmp_path / "net.json"))
    spec = InitializeSpec(seed=0, task=TASK, prototypes=[prototype], datasets=sets, output_dir=tmp_path)
    with pytest.raises(JobFailure, match=r"sample 3 has the token id 7; prototype 'main' \(net:sha256-.* knows 7"):
        run(spec, lambda progress: None)
