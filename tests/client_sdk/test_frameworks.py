"""The recipes of docs/devices.md for Lightning and Hugging Face, with the libraries themselves."""

import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from safetensors.torch import save
from torch.utils.data import TensorDataset

from contract.tensors import parse_header

from .conftest import FakeService
from .test_documented_loops import block

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def their_warnings() -> Iterator[None]:
    """Let them warn of what they like (few workers, a small data set); keep their names off the network."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("objective", ["sgd", "scaffold"])
def test_lightning_trains_the_rounds(service: FakeService, take_part: Run, blobs: Any, objective: str) -> None:
    service.plan |= {"objective": {"kind": objective}}
    service.heartbeat_seconds = 0
    data = TensorDataset(*map(torch.from_numpy, blobs))
    report = take_part(data, train=block("lightning")["lightning"])
    assert (report.state, [each.steps for each in report.rounds]) == ("finished", [10, 10])
    assert objective != "sgd" or report.losses[1] < report.losses[0]
    names = parse_header(service.updates[0], len(service.updates[0])).tensors
    assert (objective == "scaffold") == any(name.startswith("control.") for name in names)


def bert() -> torch.nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    size: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    size |= {"vocab_size": 20, "num_labels": 2, "max_position_embeddings": 8}
    return BertForSequenceClassification(BertConfig(**size))


def test_hugging_face_s_trainer_trains_a_model_of_theirs(service: FakeService, take_part: Run) -> None:
    service.architecture = "custom"
    service.models["mdl_0"] = save({name: value.contiguous() for name, value in bert().state_dict().items()})
    service.plan |= {"objective": {"kind": "fedprox"}, "optimizer": {"kind": "adam", "lr": 0.01}}
    items = [{"input_ids": [2 + row % 2, 5, 0], "attention_mask": [1, 1, 0], "labels": row % 2} for row in range(40)]
    import datasets

    data = datasets.Dataset.from_list(items)
    report = take_part(data, train=block("hugging_face")["hugging_face"], model=bert)
    assert (report.state, report.num_samples, [each.steps for each in report.rounds]) == ("finished", 40, [10, 10])
    assert report.losses[1] < report.losses[0]
