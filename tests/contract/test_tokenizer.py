"""Token ids that both ends compute alike."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.tokenizer import HashingTokenizer, word_id, words


def test_ids_follow_the_documented_rule() -> None:
    """1 + (first 8 bytes of BLAKE2b, big-endian, mod vocab_size - 1), then zeros."""
    expected = [1 + int.from_bytes(hashlib.blake2b(w, digest_size=8).digest(), "big") % 999 for w in (b"good", b"film")]
    assert HashingTokenizer(1000, 4).encode("Good FILM").tolist() == [*expected, 0, 0]


def test_published_ids_stay() -> None:
    assert [word_id(word, 8192) for word in ("the", "film", "!", "über")] == [5457, 397, 6514, 4726]


def test_words_are_lower_case_and_marks_stand_alone() -> None:
    assert words("Don't stop:\tÉTÉ_2 \uff21!") == ["don", "'", "t", "stop", ":", "été_2", "a", "!"]
    assert words(" \n") == []


def test_long_texts_are_cut_and_short_ones_filled() -> None:
    tokenizer = HashingTokenizer(50, 2)
    assert tokenizer.encode("a b c").tolist() == [word_id("a", 50), word_id("b", 50)]
    assert tokenizer.encode("").tolist() == [0, 0]
    assert tokenizer.encode_all([]).shape == (0, 2)


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=40), st.integers(2, 2**20), st.integers(1, 16))
def test_any_text_gives_ids_in_range(text: str, vocab_size: int, length: int) -> None:
    ids = HashingTokenizer(vocab_size, length).encode(text)
    assert ids.dtype == np.int64
    assert ids.shape == (length,)
    count = min(len(words(text)), length)
    assert (ids[:count] >= 1).all()
    assert (ids < vocab_size).all()
    assert (ids[count:] == 0).all()


@pytest.mark.parametrize(("vocab_size", "length", "field"), [(1, 4, "vocab_size"), (10, 0, "length")])
def test_impossible_sizes_are_refused(vocab_size: int, length: int, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        HashingTokenizer(vocab_size, length)


def test_another_process_agrees_and_needs_no_torch() -> None:
    code = (
        "import sys; from contract.tokenizer import HashingTokenizer as H; "
        "assert 'torch' not in sys.modules; print(H(8192, 4).encode('the same ids').tolist())"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "7"}
    )
    assert answer.stdout.strip() == str(HashingTokenizer(8192, 4).encode("the same ids").tolist())
