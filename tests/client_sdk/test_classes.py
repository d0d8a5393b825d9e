"""Names of classes: compared on the device before anything is trained or sent."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, Subset

from client_sdk import data
from client_sdk.errors import DatasetError
from contract.wire.federations import Task

X, Y = np.zeros((4, 2), np.float32), np.array([0, 1, 2, 0])


def task(*classes: str) -> Task:
    return Task.model_validate({"num_classes": 3, "input": {"shape": [2]}, "classes": list(classes) or None})


class Folder(Dataset[Any]):
    """As torchvision's ImageFolder: it numbers its own folders, and knows their names."""

    classes = ["cat", "dog", "fox"]

    def __len__(self) -> int:
        return len(Y)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.from_numpy(X[index]), int(Y[index])


def test_the_same_names_pass_and_others_are_told_beside_the_federations() -> None:
    data.load((X, Y), ["cat", "dog", "fox"]).check(task("cat", "dog", "fox"))
    with pytest.raises(DatasetError, match="yours are cat, fox, owl, the federation's are cat, dog, fox") as caught:
        data.load((X, Y), ["cat", "fox", "owl"]).check(task("cat", "dog", "fox"))
    assert caught.value.field == "classes"
    with pytest.raises(DatasetError, match=r"pass classes=\[...\]"):
        data.load((X, Y)).check(task("cat", "dog", "fox"))
    data.load((X, Y), ["a", "b", "c"]).check(task())


def test_a_torch_data_set_that_knows_its_classes_is_asked() -> None:
    for dataset in (Folder(), Subset(Folder(), [0, 1, 2])):
        data.load(dataset).check(task("cat", "dog", "fox"))
        with pytest.raises(DatasetError, match="yours are cat, dog, fox"):
            data.load(dataset).check(task("dog", "cat", "fox"))
    assert data.load(Folder(), ["dog", "cat", "fox"]).classes == ["dog", "cat", "fox"]


def test_nothing_is_sent_but_the_question_what_the_task_is(service: Any, take_part: Any) -> None:
    service.classes = ["a", "b"]
    with pytest.raises(DatasetError, match="yours are b, a"):
        take_part(classes=["b", "a"])
    assert [request.method for request in service.requests] == ["GET"]
    assert take_part(classes=["a", "b"], rounds=1).rounds_trained == 1
    [sent] = service.sent("POST", ".*/clients")
    assert b'"classes":["a","b"]' in sent.content.replace(b" ", b"")
