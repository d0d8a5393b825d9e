"""A device's part in secure rounds: what it is asked is answered, and kept on its disk before it leaves.

`secure-identity.json` has the key that the device signs with, from its first secure round on; `secure.json` the secrets
of one session and what was masked with them. Both are readable by the device's user only. Masks are used once: where it
is not certain what was masked, the device sits the round out.
"""

from collections.abc import Callable, Mapping

from pydantic import BaseModel

from client_sdk.client import Client
from client_sdk.errors import SecureRefusal, UpdateRefused
from client_sdk.secure import SittingOut, party
from client_sdk.state import StateFolder
from contract.errors import RuleError
from contract.secure import primitives
from contract.secure.files import count_clipped, mask_file
from contract.secure.fixed import FixedPoint
from contract.secure.weights import weight_of
from contract.wire.devices import (
    SecureConfirmAssignment,
    SecureKeysAssignment,
    SecureRevealAssignment,
    SecureSharesAssignment,
    TrainAssignment,
)
from contract.wire.secure import Advertisement, Confirmation, SecureReceipt, SecureRound, Shares

SecureAssignment = SecureKeysAssignment | SecureSharesAssignment | SecureConfirmAssignment | SecureRevealAssignment
SECURE_ASSIGNMENTS = (
    SecureKeysAssignment,
    SecureSharesAssignment,
    SecureConfirmAssignment,
    SecureRevealAssignment,
)
_IDENTITY, _SESSION = "secure-identity.json", "secure.json"


class Identity(BaseModel):
    """The private Ed25519 key of this device, in hexadecimal."""

    private: str


class Masked(BaseModel):
    """What was masked last: for which round, from which model, in which session."""

    round: str
    base: str
    session: str


class Kept(BaseModel):
    """The present session, and the last update that was masked."""

    secrets: party.Secrets | None = None
    masked: Masked | None = None


class SecureSessions:
    """The sessions of a device, one after another.

    Args:
        client: the service.
        folder: where secrets are kept.
        peers: name -> identity key in hexadecimal of every other device, where the user knows them.
    """

    def __init__(self, client: Client, folder: StateFolder, peers: Mapping[str, str] | None = None):
        self._client, self._folder, self._peers = client, folder, peers

    @property
    def is_known(self) -> bool:
        """Whether this device has ever been asked for a secure round."""
        return self._folder.read_note(_IDENTITY, Identity) is not None

    def identity(self) -> bytes:
        """Return this device's private key, made when it is first needed."""
        found = self._folder.read_note(_IDENTITY, Identity)
        if found is None:
            found = Identity(private=primitives.fresh().hex())
            self._folder.write_note(_IDENTITY, found)
        return bytes.fromhex(found.private)

    def fingerprint(self) -> str:
        """Return the public key that the others know this device by, in hexadecimal."""
        return primitives.identity_of(self.identity()).hex()

    def answer(self, assignment: SecureAssignment) -> str | None:
        """Say what the session's phase asks for; return why the service no longer wants it, if so.

        Raises:
            SecureRefusal: it would show more than the sum, or somebody lies: nothing was said.
            SittingOut: the secrets of the session are not here.
        """
        try:
            if isinstance(assignment, SecureKeysAssignment):
                self._advertise(assignment)
            elif isinstance(assignment, SecureSharesAssignment):
                self._share(assignment)
            elif isinstance(assignment, SecureConfirmAssignment):
                self._confirm(assignment)
            else:
                self._reveal(assignment)
        except RuleError as error:
            raise _refused(assignment.round.index, error) from error
        except UpdateRefused as error:  # the phase is over, or this was said before in other words
            return error.detail
        return None

    def _advertise(self, assignment: SecureKeysAssignment) -> None:
        asked, kept = assignment.secure, self._kept()
        if kept.secrets is None or kept.secrets.session != asked.session:
            own = party.begin(
                self.identity(),
                federation=assignment.federation_id,
                session=asked.session,
                model=asked.model,
                name=assignment.client_name,
                threshold=asked.threshold,
                min_group=asked.min_group,
            )
            self._keep(kept.model_copy(update={"secrets": own}))
        keys = party.advertise(self._secrets(asked))
        self._say(assignment, "keys", Advertisement(session=asked.session, keys=keys))

    def _share(self, assignment: SecureSharesAssignment) -> None:
        own = party.share(self._secrets(assignment.secure), assignment.peers, self._peers)
        self._keep_secrets(own)
        self._say(assignment, "shares", Shares(session=own.session, sealed=own.sealed or {}))

    def _confirm(self, assignment: SecureConfirmAssignment) -> None:
        own, signature = party.confirm(self._secrets(assignment.secure), assignment.survivors)
        self._keep_secrets(own)
        self._say(assignment, "confirmation", Confirmation(session=own.session, signature=signature.hex()))

    def _reveal(self, assignment: SecureRevealAssignment) -> None:
        own = party.reveal(self._secrets(assignment.secure), assignment.signatures, assignment.sealed)
        self._keep_secrets(own)
        assert own.revealed is not None
        self._say(assignment, "revelation", own.revealed)

    # ------------------------------------------------------------------------------------------------- masked updates
    def prepare(self, assignment: TrainAssignment) -> None:
        """See that this device can mask an update for the session, before it trains one.

        Raises:
            SecureRefusal: as `answer`.
            SittingOut: its secrets are not here, or an update was masked already.
        """
        assert assignment.secure is not None
        own, masked = self._secrets(assignment.secure), self._kept().masked
        if masked is not None and masked.session == own.session:
            raise SittingOut("an update was masked in this session already, and its masks are not used again")
        if masked is not None and (masked.round, masked.base) == (assignment.round.id, assignment.model.id):
            raise SittingOut("the same update was masked in another session of the round; two sums could tell it apart")
        try:
            self._keep_secrets(party.join(own, assignment.members))
        except RuleError as error:
            raise _refused(assignment.round.index, error) from error

    def mask(self, assignment: TrainAssignment, num_samples: int, metadata: Callable[[int], dict[str, str]]) -> None:
        """Mask the folder's plain update into its draft; once a session.

        Args:
            assignment: the round's.
            num_samples: n_k.
            metadata: how many values are beyond the clip -> the file's metadata.

        Raises:
            SecureRefusal: a value is not finite, or n_k does not fit the sum.
        """
        asked, folder = assignment.secure, self._folder
        assert asked is not None
        own = self._secrets(asked)
        done = Masked(round=assignment.round.id, base=assignment.model.id, session=own.session)
        self._keep(Kept(secrets=own, masked=done))
        fixed = FixedPoint(asked.clip, asked.bits, asked.modulus_bits)
        weight = weight_of(num_samples, asked.weighted)
        base = folder.model(assignment.model.digest)
        try:
            told = metadata(count_clipped(folder.plain, base, fixed)) | {"session": own.session}
            mask_file(folder.plain, base, folder.draft, fixed, weight, party.masks(own, fixed), told)
        except RuleError as error:
            raise _refused(assignment.round.index, error) from error
        finally:
            folder.plain.unlink(missing_ok=True)

    # --------------------------------------------------------------------------------------------------------- the disk
    def _secrets(self, asked: SecureRound) -> party.Secrets:
        own = self._kept().secrets
        if own is None or own.session != asked.session:
            raise SittingOut("this device's secrets for the session are not here")
        return own

    def _kept(self) -> Kept:
        return self._folder.read_note(_SESSION, Kept) or Kept()

    def _keep(self, kept: Kept) -> None:
        self._folder.write_note(_SESSION, kept)

    def _keep_secrets(self, own: party.Secrets) -> None:
        self._keep(self._kept().model_copy(update={"secrets": own}))

    def _say(self, assignment: SecureAssignment, what: str, said: BaseModel) -> SecureReceipt:
        return self._client.say_secure(assignment.round.id, what, said)


def _refused(index: int, error: RuleError) -> SecureRefusal:
    return SecureRefusal(f"round {index}: {error.detail}; nothing was sent. Ask the operator what happened")
