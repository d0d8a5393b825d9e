"""Tokens follow from the key and cannot be made without it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.infra import tokens

KEY = b"k" * 32


@pytest.mark.parametrize("kind", tokens.PREFIX)
def test_a_token_says_what_it_is_and_is_the_same_every_time(kind: str) -> None:
    token = tokens.derive(KEY, kind, "id_1", "nonce")
    assert token == tokens.derive(KEY, kind, "id_1", "nonce")
    assert tokens.kind_of(token) == kind
    assert len(token) - len(tokens.PREFIX[kind]) == 43  # 256 bits


def test_everything_counts() -> None:
    made = {
        tokens.derive(key, kind, id_, nonce)
        for key in (KEY, b"other key")
        for kind in tokens.PREFIX
        for id_ in ("a", "b")
        for nonce in ("1", "2")
    }
    assert len(made) == 2 * len(tokens.PREFIX) * 2 * 2


@given(st.text(max_size=200))
def test_any_text_has_a_hash_that_depends_on_the_key(text: str) -> None:
    assert len(tokens.hash_token(KEY, text)) == 64
    assert tokens.hash_token(KEY, text) != tokens.hash_token(b"other", text)
    assert tokens.hash_token(KEY, text) != tokens.hash_token(KEY, text + "x")


def test_what_is_no_token_claims_to_be_none() -> None:
    assert tokens.kind_of("Bearer x") is None
    assert tokens.kind_of("") is None


def test_nonces_are_new() -> None:
    assert len({tokens.fresh_nonce() for _ in range(100)}) == 100
