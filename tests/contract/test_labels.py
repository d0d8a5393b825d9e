"""Labels are whole numbers from 0; whatever else they are, the first wrong one is named, with the remedy."""

from typing import Any

import numpy as np
import pytest

from contract.labels import class_numbers


@pytest.mark.parametrize("kind", ["float32", "float64", "int8", "uint64", "int64", "bool"])
def test_whole_numbers_of_any_kind(kind: str) -> None:
    made = class_numbers(np.array([0, 1, 1], dtype=kind), 3)
    assert made.dtype == np.int64 and made.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (np.linspace(0.05, 0.95, 3), "label 0 is 0.05; labels with fractions"),
        (np.array(["cat", "dog", "cat"]), "number the classes from 0"),
        (np.array([b"a", b"b", b"c"]), "number the classes from 0"),
        (np.array([1.0, np.nan, 1.0]), "label 1 is nan; every sample needs a class"),
        (np.array([1.0, 2.0, np.inf]), "label 2 is inf"),
        (np.array([0, -1, 2]), "label 1 is -1; labels start at 0"),
        (np.array([0, 1, 100_000]), "label 2 is 100000"),
        (np.array([0, 1, 2**64 - 1], dtype=np.uint64), "label 2 is 1.8"),
        (np.eye(3), "argmax(1)"),
        (np.zeros((3, 1)), "shape [3, 1]"),
        (np.array(1), "shape []"),
        (np.array([0, 1]), "2 labels for 3 inputs"),
        (np.array([0, 1, 1j]), "no numbers"),
    ],
)
def test_what_is_no_class_number(labels: Any, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        class_numbers(labels, 3)
    assert said in str(caught.value)
