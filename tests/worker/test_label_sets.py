"""Labels of the server's data sets, as a job reads them: what is none of the task's is named with its remedy."""

from pathlib import Path

import numpy as np
import pytest

from contract.tensors import write_file
from contract.wire.federations import Task
from worker.pipeline.networks import read_labels
from worker.specs import JobFailure

MASKS = Task.model_validate({"kind": "dense", "num_classes": 2, "input": {"shape": [1, 4, 4], "dtype": "float32"}})


@pytest.mark.parametrize(
    ("masks", "said"),
    [
        (np.full((3, 4, 4), 255, np.uint8), "the test data set: labels are all 255, which counts nowhere; label some"),
        (np.full((3, 4, 4), -100), "test data set: sample 0 has label -100 at [0, 0]; the federation's 2 classes"),
        (None, "the test data set has no labels"),
    ],
)
def test_a_set_that_measures_nothing_is_the_operators_to_mend(
    tmp_path: Path, masks: np.ndarray | None, said: str
) -> None:
    arrays = {"inputs": np.zeros((3, 1, 4, 4), np.float32)}
    write_file(tmp_path / "set", arrays if masks is None else arrays | {"labels": masks})
    with pytest.raises(JobFailure) as caught:
        read_labels(tmp_path / "set", "test", MASKS)
    assert caught.value.code == "bad_option" and said in caught.value.detail
