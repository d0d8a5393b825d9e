"""Tokens: derived from the service's key, stored as keyed hashes only.

A token is HMAC(key, kind, id, nonce). The nonce is in the database, the key is not; so a stolen database holds no
token, and the answer to a repeated enrolment can show the same token again without it having been stored.
"""

import base64
import hashlib
import hmac
import secrets

PREFIX = {"operator": "pst_op_", "viewer": "pst_view_", "device": "pst_dev_", "join": "pst_join_"}


def fresh_nonce() -> str:
    """Return a random nonce."""
    return secrets.token_hex(16)


def derive(key: bytes, kind: str, id_: str, nonce: str) -> str:
    """Return the token of (kind, id, nonce), with a prefix that says what it is."""
    mac = hmac.digest(key, f"token\x1f{kind}\x1f{id_}\x1f{nonce}".encode(), hashlib.sha256)
    return PREFIX[kind] + base64.urlsafe_b64encode(mac).decode().rstrip("=")


def hash_token(key: bytes, token: str) -> str:
    """Return the keyed hash under which a token is stored and looked up.

    The look-up compares hashes of a secret key, so its timing tells nothing about a token.
    """
    return hmac.digest(key, b"hash\x1f" + token.encode(errors="replace"), hashlib.sha256).hex()


def hashes(keys: tuple[bytes, ...], token: str) -> list[str]:
    """Return the hashes under which a token may be stored: under the key, and under the one before."""
    return [hash_token(key, token) for key in keys]


def same(stored: str | None, candidates: list[str]) -> bool:
    """Whether a stored hash is one of these, in time that does not depend on where they differ."""
    return any(hmac.compare_digest(stored or "", candidate) for candidate in candidates)


def derive_again(keys: tuple[bytes, ...], kind: str, id_: str, nonce: str, stored: str) -> str | None:
    """Return the token that is stored under this hash, or None when it was made under a key that is gone."""
    for key in keys:
        token = derive(key, kind, id_, nonce)
        if same(stored, hashes(keys, token)):
            return token
    return None


def kind_of(token: str) -> str | None:
    """Return what a token claims to be by its prefix, or None."""
    return next((kind for kind, prefix in PREFIX.items() if token.startswith(prefix)), None)
