"""Text networks: padding takes part in nothing; bad ids are named."""

import pytest
import torch

from contract.nn import registry
from contract.tokenizer import HashingTokenizer
from contract.wire.federations import Task

NAMES = ["lstm", "transformer-tiny", "transformer-mini"]


def text_task(length: int) -> Task:
    return Task.model_validate({"num_classes": 2, "input": {"shape": [length], "dtype": "int64"}})


@pytest.mark.parametrize("name", NAMES)
def test_padding_changes_nothing(name: str) -> None:
    """The same text cut at 3 and padded to 6 tokens, with the same weights."""
    long = registry.initialise(name, {"vocab_size": 50}, text_task(6), 1).eval()
    short = registry.initialise(name, {"vocab_size": 50}, text_task(3), 2).eval()
    state = long.state_dict()
    if "backbone.positions" in state:
        state["backbone.positions"] = state["backbone.positions"][:3]
    short.load_state_dict(state)
    ids = torch.tensor([[4, 9, 17]])
    torch.testing.assert_close(long(torch.nn.functional.pad(ids, (0, 3))), short(ids))


@pytest.mark.parametrize("name", NAMES)
def test_a_text_without_words_has_finite_logits(name: str) -> None:
    module = registry.initialise(name, {"vocab_size": 50}, text_task(4), 1)
    logits = module(torch.zeros(2, 4, dtype=torch.int64))
    logits.sum().backward()
    assert torch.isfinite(logits).all()
    grads = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    assert all(torch.isfinite(grad).all() for grad in grads)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (torch.tensor([[1, 2, 3, 50]]), "vocab_size"),
        (torch.tensor([[1, 2, 3, -1]]), "vocab_size"),
        (torch.tensor([[1, 2, 3]]), r"task\.input\.shape"),
        (torch.zeros(1, 4), "float32"),
    ],
)
def test_bad_ids_are_named(name: str, ids: torch.Tensor, message: str) -> None:
    module = registry.initialise(name, {"vocab_size": 50}, text_task(4), 1)
    with pytest.raises(ValueError, match=message):
        module(ids)


@pytest.mark.parametrize("name", ["lstm", "transformer-tiny"])
def test_it_learns_which_word_is_there(name: str) -> None:
    texts = ["a good film", "a bad film", "good , really", "really bad !"] * 4
    labels = torch.tensor([1, 0, 1, 0] * 4)
    ids = torch.from_numpy(HashingTokenizer(200, 4).encode_all(texts))
    module = registry.initialise(name, {"vocab_size": 200}, text_task(4), 1)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    for _ in range(30):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(ids), labels).backward()
        optimizer.step()
    assert (module(ids).argmax(dim=1) == labels).all()
