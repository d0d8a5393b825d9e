"""What devices say to each other through the service in a secure round."""

from typing import Annotated

from fastapi import Path

from contract.wire.secure import Advertisement, Confirmation, Revelation, SecureReceipt, Shares
from service.api.deps import Device, Services
from service.api.problems import documented
from service.api.routing import router_of
from service.api.services import Services as Parts
from service.operations.fleet import secure

router = router_of("/v1/rounds/{round_id}/secure", tag="devices")
RoundId = Annotated[str, Path(max_length=64)]
_REFUSALS = documented("unauthorized", "forbidden", "not-found", "not-selected", "round-closed", "already-delivered")
_CHECKED = _REFUSALS | documented("invalid-field")


def _say(services: Parts, round_id: str, caller: Device, said: secure.Said) -> SecureReceipt:
    with services.store.write() as session:
        return secure.say(session, round_id, caller, said)


@router.put("/keys", responses=_REFUSALS)
def put_keys(round_id: RoundId, body: Advertisement, services: Services, caller: Device) -> SecureReceipt:
    """Say this device's public keys for the session of a secure round. The same keys again change nothing."""
    return _say(services, round_id, caller, body)


@router.put("/shares", responses=_CHECKED)
def put_shares(round_id: RoundId, body: Shares, services: Services, caller: Device) -> SecureReceipt:
    """Leave shares of this device's secrets for the others, sealed: the service cannot read them."""
    return _say(services, round_id, caller, body)


@router.put("/confirmation", responses=_REFUSALS)
def put_confirmation(round_id: RoundId, body: Confirmation, services: Services, caller: Device) -> SecureReceipt:
    """Sign the list of those whose masked updates are added up."""
    return _say(services, round_id, caller, body)


@router.put("/revelation", responses=_CHECKED)
def put_revelation(round_id: RoundId, body: Revelation, services: Services, caller: Device) -> SecureReceipt:
    """Reveal the shares that take the masks off the sum: of each other device one of two, never both."""
    return _say(services, round_id, caller, body)
