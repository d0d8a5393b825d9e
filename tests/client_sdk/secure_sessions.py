"""The whole protocol of secure aggregation in memory: devices, a relay in between, the sum at the end."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from client_sdk.secure import party
from contract.secure import primitives
from contract.secure.files import mask_file
from contract.secure.fixed import FixedPoint
from contract.wire.secure import SecureKeys
from worker.parts import secure
from worker.parts.blocks import Source

SESSION = {"federation": "fed_1", "session": "ses_1", "model": "main", "threshold": 2 / 3, "min_group": 3}


class Relay:
    """What an honest service does; a test lets devices leave, or changes what passes."""

    def __init__(self, names: Iterable[str], fixed: FixedPoint, **changed: object):
        self.fixed, self.options = fixed, SESSION | changed
        self.devices = {
            name: party.begin(primitives.fresh(), name=name, **self.options)  # type: ignore[arg-type]
            for name in names
        }
        self.keys: dict[str, SecureKeys] = {}
        self.signatures: dict[str, str] = {}

    def advertise(self, without: Iterable[str] = ()) -> None:
        self.keys = {name: party.advertise(own) for name, own in self.devices.items() if name not in set(without)}

    def share(self, without: Iterable[str] = ()) -> None:
        here = set(self.keys) - set(without)
        self.devices |= {name: party.share(self.devices[name], self.keys) for name in sorted(here)}
        self.members = sorted(here)
        self.devices |= {name: party.join(self.devices[name], self.members) for name in self.members}

    def upload(self, files: Mapping[str, Path], weights: Mapping[str, int], base: Path, folder: Path) -> list[Source]:
        sent = []
        for name in sorted(set(files) & set(self.members)):
            masked, masks = folder / f"masked-{name}", party.masks(self.devices[name], self.fixed)
            mask_file(files[name], base, masked, self.fixed, weights[name], masks, {})
            sent.append(Source(name, masked, weights[name]))
        self.survivors = [source.name for source in sent]
        return sent

    def confirm(self, without: Iterable[str] = ()) -> None:
        for name in sorted(set(self.survivors) - set(without)):
            self.devices[name], signature = party.confirm(self.devices[name], self.survivors)
            self.signatures[name] = signature.hex()

    def sealed_for(self, name: str) -> dict[str, str]:
        told = {who: self.devices[who].sealed or {} for who in self.members}
        return {who: sealed[name] for who, sealed in told.items() if name in sealed}

    def reveal(self, without: Iterable[str] = ()) -> secure.Group:
        here = sorted(set(self.signatures) - set(without))
        for name in here:
            self.devices[name] = party.reveal(self.devices[name], self.signatures, self.sealed_for(name))
        said = {name: self.devices[name].revealed for name in here}
        return secure.Group(
            session=str(self.options["session"]),
            threshold=float(str(self.options["threshold"])),
            mask_keys={name: bytes.fromhex(keys.mask) for name, keys in self.keys.items()},
            commitments={name: bytes.fromhex(keys.commitment) for name, keys in self.keys.items()},
            members=self.members,
            survivors=self.survivors,
            seeds={name: _bytes(told.seeds) for name, told in said.items() if told is not None},
            keys={name: _bytes(told.keys) for name, told in said.items() if told is not None},
        )


def _bytes(told: Mapping[str, str]) -> dict[str, bytes]:
    return {name: bytes.fromhex(share) for name, share in told.items()}
