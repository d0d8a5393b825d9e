"""A module of two inputs in a live federation: rows as a tokenizer leaves them, in a Hugging Face data set."""

from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from client_sdk import RunReport, train_and_push
from contract.nn.codec import load_state, save_state
from contract.wire.federations import FederationCreate
from tools.deployment import Deployment, at_once, federation_request

LENGTH, WORDS = 8, 20


class Encoder(nn.Module):
    """A transformer of one layer that returns a tuple, as those of other libraries do with return_dict=False."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, 16), nn.Embedding(LENGTH, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.classifier = nn.Linear(16, 2)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.words(input_ids) + self.places.weight
        hidden = self.layer(hidden, src_key_padding_mask=attention_mask == 0)
        return self.classifier(hidden[:, 0]), hidden


def rows(seed: int, count: int = 48) -> datasets.Dataset:
    """Return padded rows whose class is told by their words; what is padded with has words of the other class."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    mask = (np.arange(LENGTH) < rng.integers(2, LENGTH, (count, 1))).astype("int64")
    side = np.where(mask == 1, labels[:, None], 1 - labels[:, None])
    ids = rng.integers(0, WORDS // 2, (count, LENGTH)) + WORDS // 2 * side
    columns = {"label": labels, "input_ids": ids, "token_type_ids": 0 * ids, "attention_mask": mask}
    return datasets.Dataset.from_dict({name: values.tolist() for name, values in columns.items()})


@pytest.mark.slow
def test_two_rounds_of_a_module_that_takes_ids_and_mask(deployment: Deployment, tmp_path: Path) -> None:
    torch.manual_seed(0)
    save_state(Encoder(), tmp_path / "first.safetensors")
    operator = deployment.operator
    first = operator.import_model(tmp_path / "first.safetensors", architecture="custom")
    request = federation_request(
        "two-inputs",
        {"name": "fedavg"},
        task={"num_classes": 2, "input": {"shape": [LENGTH], "dtype": "int64"}},
        prototypes=[{"architecture": "custom", "initial_model": first.id}],
        local={"optimizer": {"kind": "adam", "lr": 0.01}, "epochs": 6, "batch_size": 8},
        rounds={"total": 2, "min_clients": 2, "min_updates": 2, "evaluate": {"share": 0.25}},
        datasets={},
    )
    created = operator.create_federation(FederationCreate.model_validate(request))
    operator.start_federation(created.id)
    modules = {name: Encoder() for name in ("anna", "ben")}
    both = {"input_ids": "input_ids", "attention_mask": "attention_mask"}

    def device(number: int, name: str) -> RunReport:
        return train_and_push(
            deployment.url,
            rows(number),
            federation=created.id,
            join_token=created.join_token,
            name=name,
            state_dir=tmp_path / name,
            device="cpu",
            progress=False,
            model=modules[name],
            columns=(both, "label"),
            evaluate_on=rows(10) if name == "anna" else None,
        )

    reports = at_once(deployment, modules, device)
    shown = operator.federation(created.id)
    assert shown.state == "finished", deployment.log("worker")[-2000:]
    for name, report in reports.items():  # ben holds a quarter back for the federation's figures
        assert [each.num_samples for each in report.rounds] == [48 if name == "anna" else 36] * 2
        assert report.rounds[1].after["accuracy"] > 0.9 > report.rounds[0].before["accuracy"]
    path = reports["anna"].model_path
    assert path is not None
    final = Encoder()
    load_state(final, path)
    kept = modules["anna"].state_dict()
    assert all(torch.equal(value, kept[name]) for name, value in final.state_dict().items())
    members = operator.clients(created.id).items
    assert {member.num_samples for member in members} == {48}
