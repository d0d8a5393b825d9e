"""What devices say to each other through the service in a secure round: public keys, sealed shares, signatures.

Bytes travel in hexadecimal. The service reads none of it but the shares that are revealed at the end.
"""

from typing import Annotated, Literal

from pydantic import Field

from contract.bounds import Id
from contract.wire.common import Name, Request, Response, Timestamp

MAX_MEMBERS = 1000
"""Devices that a secure round may ask; it bounds what each of them sends and is sent."""

SecurePhase = Literal["keys", "shares", "training", "confirm", "reveal"]
"""Advertise keys; share secrets; train and upload what is masked; sign who uploaded; reveal what unmasks the sum."""

Key = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", max_length=64, description="32 bytes")]
Signature = Annotated[str, Field(pattern=r"^[0-9a-f]{128}$", max_length=128, description="64 bytes")]
Share = Annotated[str, Field(pattern=r"^[0-9a-f]{66}$", max_length=66, description="33 bytes")]
Sealed = Annotated[
    str, Field(pattern=r"^[0-9a-f]{188}$", max_length=188, description="nonce, two shares, tag: 94 bytes")
]
Session = Annotated[Id, Field(min_length=1, examples=["rnd_1k1bgsahq96c94cyrb0j4zq-1"])]


class SecureKeys(Request):
    """A device's public keys for one session, signed with the key that it keeps."""

    identity: Key = Field(description="Ed25519, the device's own from its enrolment on")
    seal: Key = Field(description="X25519: others seal shares for this device")
    mask: Key = Field(description="X25519: seeds of pairwise masks are agreed on")
    commitment: Key = Field(description="SHA-256 of the seed of its self mask, by which a false share is found")
    signature: Signature = Field(description="by `identity`, of session, model, name and the keys")


class Advertisement(Request):
    """A device takes part in a session."""

    session: Session
    keys: SecureKeys


class Shares(Request):
    """Shares of a device's secrets, each sealed for the one that is to hold it."""

    session: Session
    sealed: dict[Name, Sealed] = Field(max_length=MAX_MEMBERS, description="by the holder's name")


class Confirmation(Request):
    """A device has seen this list of survivors and no other."""

    session: Session
    signature: Signature = Field(description="by `identity`, of session, model and the survivors' names")


class Revelation(Request):
    """The shares that a device holds of what unmasks the sum: of each other device one of two, never both."""

    session: Session
    seeds: dict[Name, Share] = Field(max_length=MAX_MEMBERS, description="of survivors' self masks")
    keys: dict[Name, Share] = Field(max_length=MAX_MEMBERS, description="of mask keys of those that dropped out")


class SecureReceipt(Response):
    """What was said is stored."""

    round_id: str
    session: str
    phase: SecurePhase = Field(description="what was said")


class SecureRound(Response):
    """The session of secure aggregation that a device is in."""

    session: str
    model: str = Field(description="what the group trains: its updates alone are added up")
    phase: SecurePhase
    until: Timestamp | None = Field(
        None, description="when the phase ends for those that said nothing; not of training"
    )
    threshold: float
    min_group: int
    clip: float
    bits: int
    modulus_bits: Literal[32, 64]
    weighted: bool = Field(description="whether an update counts by its samples, or once")
