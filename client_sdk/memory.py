"""What a method keeps on the device between rounds, in two phases.

SCAFFOLD's control variate and MOON's previous model are right only if they follow what the service counted. So the
new state is *proposed* beside the old one, *acknowledged* with the upload, and replaces the old one when the round has
moved on: when another round is trained. A round that is trained again starts from the old state.

Files: `memory.safetensors` (in force), `memory.next.safetensors` with `memory.next.json` (proposed).
"""

import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ValidationError
from torch import Tensor

from contract.nn import codec
from contract.private import private
from contract.tensors import TensorError, TensorFile, sync

logger = logging.getLogger("client_sdk")


def sync_names(folder: Path) -> None:
    """Make the names in a folder last, so that a power cut brings no old file back."""
    with suppress(OSError):  # Windows cannot open a folder
        handle = os.open(folder, os.O_RDONLY)
        try:
            sync(handle)
        finally:
            os.close(handle)


class Proposal(BaseModel):
    """The note beside the proposed state."""

    round: str
    acknowledged: bool = False


class Memory:
    """A method's state in a device's folder. Tensors are named by the method that keeps them."""

    def __init__(self, folder: Path):
        self._file = folder / "memory.safetensors"
        self._next = folder / "memory.next.safetensors"
        self._note = folder / "memory.next.json"

    def begin(self, round_id: str) -> dict[str, Tensor]:
        """Settle what was proposed and return the state that `round_id` starts from; empty if there is none."""
        proposal = self.proposal()
        if proposal is not None:
            if proposal.acknowledged and proposal.round != round_id and self._next.exists():
                os.replace(self._next, self._file)
                sync_names(self._file.parent)  # the note goes last: a crash in between changes nothing
            self.discard()
        return self._read()

    def propose(self, round_id: str, state: Mapping[str, Tensor]) -> None:
        """Keep what the state will be if the round's update counts; replaces an earlier proposal."""
        self.discard()
        if state:
            codec.save_state(state, self._next)
            self._write(Proposal(round=round_id))

    def acknowledge(self, round_id: str) -> None:
        """Note that the service took the round's update."""
        proposal = self.proposal()
        if proposal is not None and proposal.round == round_id:
            self._write(Proposal(round=round_id, acknowledged=True))

    def discard(self) -> None:
        """Forget what was proposed: the update does not count."""
        self._note.unlink(missing_ok=True)
        self._next.unlink(missing_ok=True)

    def proposal(self) -> Proposal | None:
        """Return the note of what is proposed, if anything is."""
        try:
            return Proposal.model_validate_json(self._note.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError:
            logger.warning("%s is damaged and is not used", self._note)
            return None

    def _read(self) -> dict[str, Tensor]:
        if not self._file.exists():
            return {}
        try:
            with TensorFile(self._file) as file:
                return {name: codec.read_tensor(file, name) for name in file.names}
        except TensorError as error:
            logger.warning("%s is damaged and is not used: %s", self._file, error.detail)
            return {}

    def _write(self, proposal: Proposal) -> None:
        temporary = self._note.with_name(f"{self._note.name}.tmp")
        with open(temporary, "w", encoding="utf-8", opener=private) as file:
            json.dump(proposal.model_dump(), file)
            file.flush()
            sync(file.fileno())
        os.replace(temporary, self._note)
        sync_names(self._note.parent)
