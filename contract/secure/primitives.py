"""The few primitives of secure aggregation, from `cryptography`: each a function of bytes.

X25519 (RFC 7748), HKDF-SHA256 (RFC 5869), ChaCha20 and ChaCha20-Poly1305 (RFC 8439), Ed25519 (RFC 8032).
"""

import secrets
from typing import TYPE_CHECKING

from contract.errors import RuleError
from contract.installation import install

try:
    from cryptography.exceptions import InvalidSignature, InvalidTag
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError as error:
    raise ImportError(f"secure aggregation needs `cryptography`: {install('client', 'secure')}") from error

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import CipherContext

KEY_BYTES = 32
_NONCE = 12


def fresh() -> bytes:
    """Return 32 bytes from the system's source of randomness: a seed, or a private key of X25519 or Ed25519."""
    return secrets.token_bytes(KEY_BYTES)


def public(private: bytes) -> bytes:
    """Return the X25519 public key of a private one."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agree(private: bytes, other: bytes, purpose: bytes) -> bytes:
    """Return the 32 bytes that two parties alone can compute: HKDF of X25519's result, bound to a purpose.

    Raises:
        RuleError: bad_key: no public key, or one of small order.
    """
    try:
        shared = X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError:
        raise RuleError("bad_key", "a public key is none of X25519") from None
    return derive(shared, purpose)


def derive(secret: bytes, purpose: bytes, salt: bytes | None = None, length: int = KEY_BYTES) -> bytes:
    """Return HKDF-SHA256 of a secret."""
    return HKDF(algorithm=hashes.SHA256(), length=length, salt=salt, info=purpose).derive(secret)


def seal(key: bytes, message: bytes, context: bytes) -> bytes:
    """Return nonce and ciphertext of a message, authenticated with what it is bound to."""
    nonce = secrets.token_bytes(_NONCE)
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, message, context)


def unseal(key: bytes, sealed: bytes, context: bytes) -> bytes:
    """Return the message.

    Raises:
        RuleError: bad_share: it was changed, or is not of this key or context.
    """
    try:
        return ChaCha20Poly1305(key).decrypt(sealed[:_NONCE], sealed[_NONCE:], context)
    except (InvalidTag, ValueError):
        raise RuleError("bad_share", "a sealed share was changed on its way, or is not for this device") from None


def identity_of(private: bytes) -> bytes:
    """Return the Ed25519 public key of a private one."""
    return Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def sign(private: bytes, message: bytes) -> bytes:
    """Return the Ed25519 signature of a message."""
    return Ed25519PrivateKey.from_private_bytes(private).sign(message)


def is_signed(identity: bytes, signature: bytes, message: bytes) -> bool:
    """Whether a signature of a message is that identity's."""
    try:
        Ed25519PublicKey.from_public_bytes(identity).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


class Stream:
    """ChaCha20's key stream of a seed, read piece by piece: PRG of the protocol. A seed is used for one stream only."""

    def __init__(self, seed: bytes):
        self._context: CipherContext = Cipher(algorithms.ChaCha20(seed, bytes(16)), mode=None).encryptor()

    def read(self, length: int) -> bytes:
        """Return the next bytes."""
        return self._context.update(bytes(length))
