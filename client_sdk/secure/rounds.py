"""What the device's loop knows of secure rounds; the cryptography is imported when the first one comes."""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from client_sdk.client import Client
from client_sdk.errors import SecureRefusal, UsageError
from client_sdk.progress import Progress
from client_sdk.rounds import Mask
from client_sdk.secure import SittingOut
from client_sdk.state import StateFolder
from contract.wire.devices import (
    SecureConfirmAssignment,
    SecureKeysAssignment,
    SecureRevealAssignment,
    SecureSharesAssignment,
    TrainAssignment,
)

if TYPE_CHECKING:
    from client_sdk.secure.session import SecureSessions

SecureAssignment = SecureKeysAssignment | SecureSharesAssignment | SecureConfirmAssignment | SecureRevealAssignment
REST_SECONDS = 2.0
"""How long a device that sits a round out waits before it asks again: the service goes on asking it."""


class SecureRounds:
    """A device's part in secure rounds.

    Args:
        required: refuse to send an update that is not masked.
        peers: name -> identity key in hexadecimal of every other device, where the user knows them.
        sleep: how to wait.
    """

    def __init__(
        self,
        client: Client,
        folder: StateFolder,
        progress: Progress,
        *,
        required: bool = False,
        peers: Mapping[str, str] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self._client, self._folder, self._progress = client, folder, progress
        self._required, self._peers, self._sleep = required, peers, sleep
        self._made: SecureSessions | None = None

    @property
    def _sessions(self) -> "SecureSessions":
        if self._made is None:
            try:
                from client_sdk.secure.session import SecureSessions
            except ImportError as error:
                raise UsageError(str(error)) from error
            self._made = SecureSessions(self._client, self._folder, self._peers)
            self._progress.say(f"this device's identity key in secure rounds: {self._made.fingerprint()}")
        return self._made

    def answer(self, assignment: SecureAssignment) -> None:
        """Say what a phase of a secure round asks for, or rest where this device cannot.

        Raises:
            SecureRefusal: somebody lies, or the sum would be too small; nothing was said.
        """
        try:
            reason = self._sessions.answer(assignment)
        except SittingOut as error:
            reason = str(error)
        else:
            if reason is not None and isinstance(assignment, SecureRevealAssignment):
                self._left(assignment, reason)
                return
        if reason is not None:
            self._rest(assignment, reason)

    def prepare(self, assignment: TrainAssignment) -> tuple[bool, Mask | None]:
        """Return whether this device can train for a round, and what masks its update, where it is masked.

        Raises:
            SecureRefusal: the update would be sent in the clear where it must not; or as `answer`.
        """
        if assignment.secure is None:
            if self._required or (self._folder.path / "secure-identity.json").exists():
                detail = "the service asks for an update in the clear, and this device's rounds are secure"
                raise SecureRefusal(f"round {assignment.round.index}: {detail}; nothing was sent. Ask the operator why")
            return True, None
        try:
            self._sessions.prepare(assignment)
        except SittingOut as error:
            self._rest(assignment, str(error))
            return False, None
        return True, self._sessions.mask

    def _left(self, assignment: SecureRevealAssignment, reason: str) -> None:
        """Say that a round went on before this device revealed: the others' may do, so its update may well count."""
        round_ = f"round {assignment.round.index} went on without this device's last message"
        self._progress.say(f"{assignment.client_name}: {round_}, which others can make up for: {reason}")
        self._sleep(REST_SECONDS)

    def _rest(self, assignment: SecureAssignment | TrainAssignment, reason: str) -> None:
        self._progress.say(f"{assignment.client_name}: sits round {assignment.round.index} out: {reason}")
        self._sleep(REST_SECONDS)
