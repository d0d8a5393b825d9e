"""One device in one session of secure aggregation: what it may say next, and what it must never say.

Bonawitz et al. 2017, Fig. 4, with the consistency check: a device signs one list of survivors, and reveals after it
has seen that enough others signed the same one; of every other device it reveals a share of its self mask's seed or of
its mask key, never of both. `Secrets` is all that it knows; whoever keeps it stores it before anything leaves.
"""

from collections.abc import Mapping

from pydantic import BaseModel

from contract.errors import RuleError
from contract.secure import primitives, shamir
from contract.secure.fixed import FixedPoint
from contract.secure.graph import Graph, build
from contract.secure.masks import Mask, Masks, commitment, pair_seed, purpose, sign_of
from contract.wire.secure import Revelation, SecureKeys


class Refusal(RuleError):
    """What a device does not go on with: it would show more than the sum, or somebody lies."""


class Secrets(BaseModel):
    """What a device knows in one session. `uploaded`, `survivors` and `revealed` say what must not be said twice."""

    federation: str
    session: str
    model: str
    name: str
    threshold: float
    min_group: int
    identity: str
    seal: str
    mask: str
    seed: str
    peers: dict[str, SecureKeys] | None = None
    sealed: dict[str, str] | None = None
    own_share: str | None = None
    members: list[str] | None = None
    survivors: list[str] | None = None
    revealed: Revelation | None = None


def begin(
    identity: bytes, *, federation: str, session: str, model: str, name: str, threshold: float, min_group: int
) -> Secrets:
    """Return fresh secrets for a session. None of them is ever used in another one."""
    return Secrets(
        federation=federation,
        session=session,
        model=model,
        name=name,
        threshold=threshold,
        min_group=min_group,
        identity=identity.hex(),
        seal=primitives.fresh().hex(),
        mask=primitives.fresh().hex(),
        seed=primitives.fresh().hex(),
    )


def advertise(own: Secrets) -> SecureKeys:
    """Return a device's public keys, signed."""
    seal, mask = primitives.public(bytes.fromhex(own.seal)), primitives.public(bytes.fromhex(own.mask))
    identity = bytes.fromhex(own.identity)
    keys = SecureKeys(
        identity=primitives.identity_of(identity).hex(),
        seal=seal.hex(),
        mask=mask.hex(),
        commitment=commitment(bytes.fromhex(own.seed)).hex(),
        signature="0" * 128,
    )
    return keys.model_copy(update={"signature": primitives.sign(identity, _of_keys(own, own.name, keys)).hex()})


def _of_keys(own: Secrets, name: str, keys: SecureKeys) -> bytes:
    said = (keys.identity, keys.seal, keys.mask, keys.commitment)
    return purpose("keys", own.federation, own.session, own.model, name, *said)


def _of_survivors(own: Secrets, survivors: list[str]) -> bytes:
    return purpose("survivors", own.federation, own.session, own.model, *survivors)


def graph_of(own: Secrets) -> Graph:
    """Return who masks with whom."""
    assert own.peers is not None
    return build({name: bytes.fromhex(keys.mask) for name, keys in own.peers.items()}, own.threshold)


def share(own: Secrets, peers: Mapping[str, SecureKeys], trusted: Mapping[str, str] | None = None) -> Secrets:
    """Return the secrets with their shares, sealed for those who hold them; again it returns the same ones.

    Args:
        peers: everybody's keys, this device's among them.
        trusted: name -> identity key in hexadecimal, where the user knows them from elsewhere than the service.

    Raises:
        Refusal: too few devices; keys that are not signed, are equal, were changed, or are not those that are trusted.
    """
    if own.sealed is not None:
        if own.peers != dict(peers):
            raise Refusal("other_keys", "the service sent other keys than before for the same session")
        return own
    if len(peers) < own.min_group:
        raise Refusal("too_few", f"{len(peers)} devices would be added up; at least {own.min_group} are wanted")
    if peers.get(own.name) != advertise(own):
        raise Refusal("other_keys", "the service shows others a key of this device that is not its own")
    for name, keys in peers.items():
        identity, signature = bytes.fromhex(keys.identity), bytes.fromhex(keys.signature)
        if not primitives.is_signed(identity, signature, _of_keys(own, name, keys)):
            raise Refusal("bad_signature", f"the keys of {name!r} are not signed with its identity key")
        if trusted is not None and name != own.name and trusted.get(name) != keys.identity:
            detail = f"{name!r} comes with the identity key {keys.identity}, which is not among `peers`"
            raise Refusal("untrusted", detail)
    for what in ("identity", "seal", "mask"):
        if len({getattr(keys, what) for keys in peers.values()}) != len(peers):
            raise Refusal("other_keys", f"two devices come with the same {what} key")
    return _sealed(own.model_copy(update={"peers": dict(peers)}))


def _sealed(own: Secrets) -> Secrets:
    graph = graph_of(own)
    points = {name: graph.point(name) for name in graph.holders(own.name)}
    threshold = graph.threshold(own.name)
    keys = shamir.split(bytes.fromhex(own.mask), list(points.values()), threshold)
    seeds = shamir.split(bytes.fromhex(own.seed), list(points.values()), threshold)
    sealed = {}
    for name, point in points.items():
        if name != own.name:
            key, context = _seal_key(own, name, sender=own.name)
            sealed[name] = primitives.seal(key, keys[point] + seeds[point], context).hex()
    return own.model_copy(update={"sealed": sealed, "own_share": seeds[points[own.name]].hex()})


def _seal_key(own: Secrets, other: str, *, sender: str) -> tuple[bytes, bytes]:
    assert own.peers is not None
    context = purpose("seal", own.session, sender, other if sender == own.name else own.name)
    return primitives.agree(bytes.fromhex(own.seal), bytes.fromhex(own.peers[other].seal), context), context


def join(own: Secrets, members: list[str]) -> Secrets:
    """Return the secrets with who shares theirs: with them this device's update is masked.

    Raises:
        Refusal: too few, not those whose keys were seen, or others than before.
    """
    if own.members is not None:
        if own.members != sorted(members):
            raise Refusal("other_members", "the service names other members than before for the same session")
        return own
    if own.peers is None or own.name not in members or not set(members) <= set(own.peers):
        raise Refusal("other_members", "the service names members whose keys this device has not seen")
    _enough(own, len(members))
    return own.model_copy(update={"members": sorted(members)})


def _enough(own: Secrets, count: int) -> None:
    wanted = max(own.min_group, graph_of(own).quorum)
    if count < wanted:
        raise Refusal("too_few", f"{count} devices would be added up; at least {wanted} are wanted")


def masks(own: Secrets, fixed: FixedPoint) -> Masks:
    """Return what hides this device's update: PRG(b_u) and the masks that it shares with its neighbours."""
    assert own.peers is not None and own.members is not None
    pairs = [
        Mask(_pair(own, other), sign_of(own.name, other))
        for other in graph_of(own).adjacent[own.name]
        if other in own.members
    ]
    return Masks([Mask(bytes.fromhex(own.seed), 1), *pairs], fixed)


def _pair(own: Secrets, other: str) -> bytes:
    assert own.peers is not None
    public = bytes.fromhex(own.peers[other].mask)
    return pair_seed(bytes.fromhex(own.mask), public, own.session, own.name, other)


def confirm(own: Secrets, survivors: list[str]) -> tuple[Secrets, bytes]:
    """Return the secrets and the signature of the one list of survivors that this device signs in the session.

    Raises:
        Refusal: another list was signed before; too few; not all of them were members; this device is not among them.
    """
    wanted = sorted(survivors)
    if own.survivors is not None and own.survivors != wanted:
        raise Refusal("other_survivors", "the service told another list of who uploaded before: it lies about one")
    if own.members is None or not set(wanted) <= set(own.members) or own.name not in wanted:
        raise Refusal("other_survivors", "the service names survivors that were no members, or leaves this device out")
    _enough(own, len(wanted))
    signature = primitives.sign(bytes.fromhex(own.identity), _of_survivors(own, wanted))
    return own.model_copy(update={"survivors": wanted}), signature


def reveal(own: Secrets, signatures: Mapping[str, str], sealed: Mapping[str, str]) -> Secrets:
    """Return the secrets with the shares that unmask the sum over the survivors; again it returns the same ones.

    A share that somebody sealed falsely is left out: it is that device's own loss.

    Args:
        signatures: survivor -> its signature of the list of survivors.
        sealed: sender -> what it sealed for this device.

    Raises:
        Refusal: fewer than the quorum signed the list that this device has signed.
    """
    if own.revealed is not None:
        return own
    assert own.peers is not None and own.members is not None
    if own.survivors is None:
        raise Refusal("other_survivors", "this device has signed no list of survivors")
    message, graph = _of_survivors(own, own.survivors), graph_of(own)
    signed = {
        name
        for name, signature in signatures.items()
        if name in own.survivors
        and primitives.is_signed(bytes.fromhex(own.peers[name].identity), bytes.fromhex(signature), message)
    }
    wanted = max(graph.quorum, own.min_group)
    if len(signed) < wanted:
        detail = f"{len(signed)} devices signed the list of survivors that this one was told; {wanted} must"
        raise Refusal("other_survivors", detail)
    seeds, keys = {own.name: own.own_share or ""}, {}
    for name in graph.adjacent[own.name]:
        opened = _opened(own, name, sealed.get(name)) if name in own.members else None
        if opened is None:
            continue
        if name in own.survivors:
            seeds[name] = opened[shamir.SHARE_BYTES :].hex()
        else:
            keys[name] = opened[: shamir.SHARE_BYTES].hex()
    return own.model_copy(update={"revealed": Revelation(session=own.session, seeds=seeds, keys=keys)})


def _opened(own: Secrets, sender: str, sealed: str | None) -> bytes | None:
    if sealed is None:
        return None
    key, context = _seal_key(own, sender, sender=sender)
    try:
        opened = primitives.unseal(key, bytes.fromhex(sealed), context)
    except RuleError:
        return None
    return opened if len(opened) == 2 * shamir.SHARE_BYTES else None
