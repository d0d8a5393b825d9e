"""The primitives against the vectors of their RFCs and against slow ones."""

import pytest

from contract.errors import RuleError
from contract.secure import primitives
from tests.reference import secure as slow

ALICE = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
BOB = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
SHARED = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")


def test_x25519_of_rfc_7748_section_6_1() -> None:
    assert primitives.public(ALICE).hex() == "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    assert primitives.public(BOB).hex() == "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    wanted = slow.hkdf(SHARED, b"", b"for this", 32)
    assert primitives.agree(ALICE, primitives.public(BOB), b"for this") == wanted
    assert primitives.agree(BOB, primitives.public(ALICE), b"for this") == wanted
    assert primitives.agree(ALICE, primitives.public(BOB), b"for that") != wanted


def test_a_key_of_small_order_is_refused() -> None:
    with pytest.raises(RuleError, match="none of X25519"):
        primitives.agree(ALICE, bytes(32), b"")


def test_hkdf_of_rfc_5869_appendix_a_1() -> None:
    salt, info = bytes(range(13)), bytes(range(0xF0, 0xFA))
    wanted = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
    assert primitives.derive(b"\x0b" * 22, info, salt, 42).hex() == wanted
    assert slow.hkdf(b"\x0b" * 22, salt, info, 42).hex() == wanted


def test_chacha20_of_rfc_8439() -> None:
    """Section 2.3.2 and, of the stream as it is used (key 0, nonce 0, counter 0), appendix A.1."""
    block = slow.chacha20(bytes(range(32)), 64, 1, bytes.fromhex("000000090000004a00000000")).hex()
    assert block.startswith("10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e")
    zeros = primitives.Stream(bytes(32)).read(64).hex()
    assert zeros.startswith("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7")


def test_a_stream_read_in_pieces_is_the_one_read_at_once() -> None:
    seed = bytes(range(32))
    stream = primitives.Stream(seed)
    pieces = b"".join(stream.read(length) for length in (1, 63, 0, 64, 7, 200))
    assert pieces == slow.chacha20(seed, len(pieces))


def test_a_sealed_message_opens_for_its_key_and_context_alone() -> None:
    key = primitives.fresh()
    sealed = primitives.seal(key, b"a share", b"context")
    assert primitives.unseal(key, sealed, b"context") == b"a share"
    for changed in ((key, sealed, b"other"), (primitives.fresh(), sealed, b"context"), (key, sealed[:-1], b"context")):
        with pytest.raises(RuleError, match="changed on its way"):
            primitives.unseal(*changed)


def test_signatures() -> None:
    private = primitives.fresh()
    identity, signature = primitives.identity_of(private), primitives.sign(private, b"survivors")
    assert primitives.is_signed(identity, signature, b"survivors")
    assert not primitives.is_signed(identity, signature, b"others")
    assert not primitives.is_signed(primitives.identity_of(primitives.fresh()), signature, b"survivors")
    assert not primitives.is_signed(identity, b"short", b"survivors")
