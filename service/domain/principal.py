"""Who is asking."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from service.domain.errors import DomainError

Role = Literal["operator", "viewer", "device", "join"]


@dataclass(frozen=True)
class Principal:
    """A checked token: its role, its id, and for devices and join tokens the federation it belongs to."""

    role: Role
    id: str
    name: str = ""
    federation_id: str | None = None
    nonce: str = ""
    expires_at: datetime | None = None
    unsettled: bool = False  # something about this token has to be written: `operations.tokens.settle`
    session: str | None = None  # the hash of the session that stands for the token, if one does

    def need_federation(self, federation_id: str) -> None:
        """Refuse a device or join token of another federation."""
        if self.role in ("device", "join") and self.federation_id != federation_id:
            raise DomainError("forbidden", "this token belongs to another federation, or the federation's id is wrong")
