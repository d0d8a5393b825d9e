import time

import pytest

from contract.partition import Parts, PatternError, matches, partition
from contract.tensors import Header, TensorInfo

NAMES = ("body.weight", "body.lora_a.weight", "body.lora_b.weight", "norm.running_mean", "head.weight", "head.bias")


def header(*names: str) -> Header:
    return Header({name: TensorInfo("F32", (2,), 8 * at, 8 * at + 8) for at, name in enumerate(names)})


@pytest.mark.parametrize(
    ("name", "pattern", "expected"),
    [
        ("head.weight", "head.weight", True),
        ("head.weight", "head", False),
        ("head.weight", "head.*", True),
        ("head.weight", "*", True),
        ("head.weight", "*.weight", True),
        ("head.weight", "*.bias", False),
        ("a.lora_a.weight", "*.lora_*", True),
        ("a.lora_a.weight", "a*lora*weight", True),
        ("a.b", "a.*.b", False),  # the text between may be empty, the dots are two
        ("aba", "ab*ba", False),  # start and end may not share letters
        ("abba", "ab*ba", True),
        ("a[0].w", "a[0].*", True),  # brackets are themselves
        ("ab.w", "a[b].*", False),
        ("", "*", True),
    ],
)
def test_a_star_is_any_text_and_all_else_is_itself(name: str, pattern: str, expected: bool) -> None:
    assert matches(name, pattern) is expected


def test_parts_are_told_in_words() -> None:
    assert Parts().in_words == ""
    told = Parts(trains=["*.lora_*", "head.*"], lora="a_frozen").in_words
    assert told == "trains *.lora_*, head.*; the rest is frozen; LoRA's factor A is frozen"
    assert Parts(keeps=["head.*"]).in_words == "keeps head.* on devices"


def test_no_pattern_takes_long() -> None:
    began = time.monotonic()
    assert not matches("a" * 512, "*a" * 255 + "*b")
    assert time.monotonic() - began < 0.1


def test_trained_kept_and_frozen_tensors_in_the_networks_order() -> None:
    parts = Parts(trains=["*.lora_*"], keeps=["head.*"])
    found = partition(parts, header(*NAMES))
    assert found.shared == ("body.lora_a.weight", "body.lora_b.weight")
    assert found.kept == ("head.weight", "head.bias")
    assert found.frozen == ("body.weight", "norm.running_mean")
    assert found.moving == {*found.shared, *found.kept}


def test_without_trains_all_but_the_kept_tensors_are_shared() -> None:
    found = partition(Parts(keeps=["head.*"]), header(*NAMES))
    assert found.shared == NAMES[:4]
    assert found.frozen == ()


@pytest.mark.parametrize("name", ["body.lora_a.weight", "body.lora_A.default.weight"])
def test_factor_a_stays_where_it_is_frozen(name: str) -> None:
    names = (name, "body.lora_b.weight", "body.weight", "head.weight")
    found = partition(Parts(trains=["*.lora_*", "head.*"], lora="a_frozen"), header(*names))
    assert found.shared == ("body.lora_b.weight", "head.weight")
    assert found.frozen == (name, "body.weight")


@pytest.mark.parametrize(
    ("parts", "field", "says"),
    [
        ({"trains": ["head.*", "hood.*"]}, "trains.1", "'hood.*' is the name of none of the network's 6 tensors"),
        ({"keeps": ["hood.*"]}, "keeps.0", "'hood.*' is the name of none"),
        ({"trains": ["*"]}, "trains", "matches all 6 tensors, so nothing is frozen; leave it out"),
        ({"trains": ["head.*"], "keeps": ["*.bias"]}, "keeps", "'head.bias' is of `trains`, too"),
        ({"keeps": ["*"]}, "keeps", "leaves no parameter"),
        ({"trains": ["*.running_mean"]}, "trains", "matches no parameter, only buffers"),
        ({"trains": ["head.*"], "lora": "a_frozen"}, "lora", "`trains` matches no tensor `….lora_a.…`"),
    ],
)
def test_patterns_that_part_no_network_are_refused(parts: dict[str, object], field: str, says: str) -> None:
    with pytest.raises(PatternError) as refused:
        partition(Parts.model_validate(parts), header(*NAMES))
    assert refused.value.field == field
    assert says in refused.value.detail


@pytest.mark.parametrize("parts", [{"trains": []}, {"trains": ["a"] * 65}, {"keeps": ["a" * 513]}, {"keeps": [""]}])
def test_the_number_and_the_length_of_patterns_are_bounded(parts: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"trains|keeps"):
        Parts.model_validate(parts)


def test_what_is_not_said_is_not_written_down() -> None:
    assert Parts().model_dump() == {}
    assert not Parts().parted
