"""A device's part in secure rounds, on its disk: what is kept, what is said once, and when it sits out."""

import hashlib
import json
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

from client_sdk.errors import RoundClosed, SecureRefusal
from client_sdk.progress import Progress
from client_sdk.secure import SittingOut, party
from client_sdk.secure.rounds import SecureRounds
from client_sdk.secure.session import SecureSessions
from client_sdk.state import StateFolder
from contract.secure import primitives
from contract.secure.fixed import FixedPoint
from contract.tensors import TensorFile, write_file
from contract.wire import devices as wire
from contract.wire.secure import Advertisement, Revelation, Shares
from tests.client_sdk.conftest import NOW, TASK

NAMES = ("anna", "ben", "cleo")


def _digest(model: str) -> str:
    return f"sha256-{hashlib.sha256(model.encode()).hexdigest()}"


class Relay:
    """A service that takes what a device says; `refuses` makes it refuse."""

    def __init__(self) -> None:
        self.said: list[tuple[str, BaseModel]] = []
        self.refuses = False

    def say_secure(self, round_id: str, what: str, said: BaseModel) -> None:
        if self.refuses:
            raise RoundClosed(409, "round 1 is not in its phase")
        self.said.append((what, said))


class Anna:
    """The device under test, and two others that are there in memory."""

    weighted = True

    def __init__(self, folder: Path, session: str = "ses_1", base: str = "mdl_1"):
        self.folder, self.relay = StateFolder(folder), Relay()
        folder.mkdir(exist_ok=True)
        self.use(session, base)
        options: dict[str, Any] = {"federation": "fed_1", "model": "main", "threshold": 2 / 3, "min_group": 3}
        self.others = {
            name: party.begin(primitives.fresh(), session=session, name=name, **options) for name in NAMES[1:]
        }

    def use(self, session: str, base: str) -> None:
        self.session, self.base = session, base
        write_file(self.folder.model(_digest(base)), {"w": np.zeros(4, np.float32)})

    def sessions(self, peers: Mapping[str, str] | None = None) -> SecureSessions:
        """Return the device's part as a process that has just started has it."""
        return SecureSessions(self.relay, self.folder, peers)  # type: ignore[arg-type]

    def asked(self, phase: str, kind: Callable[..., Any], **more: Any) -> Any:
        secure = {"session": self.session, "model": "main", "phase": phase, "threshold": 2 / 3, "min_group": 3}
        secure |= {"clip": 4.0, "bits": 32, "modulus_bits": 64, "weighted": self.weighted}
        common = {"federation_id": "fed_1", "federation_name": "fed", "state": "running", "task": TASK, "seed": 0}
        common |= {"prototype": {"name": "main", "architecture": "mlp", "options": {}}, "client_name": "anna"}
        round_ = {"id": "rnd_1", "index": 1, "total": 2, "deadline_at": NOW}
        return kind(**common, round=round_, secure=secure, **more)

    def train(self, **changes: Any) -> wire.TrainAssignment:
        model = {"id": self.base, "digest": _digest(self.base), "size": 1, "url": "/"}
        more = {"model": model, "local": {}, "upload_url": "/", "members": list(NAMES)}
        found: wire.TrainAssignment = self.asked("training", wire.TrainAssignment, **more)
        return found.model_copy(update=changes)

    def shared(self) -> None:
        """Advertise and share; the others do so too."""
        self.sessions().answer(self.asked("keys", wire.SecureKeysAssignment))
        said = self.relay.said[-1][1]
        assert isinstance(said, Advertisement)
        self.peers = {"anna": said.keys} | {name: party.advertise(own) for name, own in self.others.items()}
        self.sessions().answer(self.asked("shares", wire.SecureSharesAssignment, peers=self.peers))
        for name, own in self.others.items():
            self.others[name] = party.join(party.share(own, self.peers), list(NAMES))

    def masked(self, value: float = 1.0) -> bytes:
        sessions, assignment = self.sessions(), self.train()
        sessions.prepare(assignment)
        write_file(self.folder.plain, {"w": np.full(4, value, np.float32)})
        sessions.mask(assignment, 10, lambda clipped: {"clipped": str(clipped)})
        return self.folder.draft.read_bytes()


@pytest.fixture
def anna(tmp_path: Path) -> Anna:
    return Anna(tmp_path / "anna")


def test_a_session_from_keys_to_shares_of_the_sum(anna: Anna, caplog: pytest.LogCaptureFixture) -> None:
    """Each step is done by a process of its own, which finds on the disk what the one before kept."""
    anna.shared()
    anna.masked()
    assert not anna.folder.plain.exists(), "nothing lies about unmasked"
    confirm = anna.asked("confirm", wire.SecureConfirmAssignment, survivors=list(NAMES))
    anna.sessions().answer(confirm)
    signatures = {}
    for name, own in anna.others.items():
        anna.others[name], signature = party.confirm(own, list(NAMES))
        signatures[name] = signature.hex()
    sealed = {name: (own.sealed or {})["anna"] for name, own in anna.others.items()}
    reveal = anna.asked("reveal", wire.SecureRevealAssignment, signatures=signatures, sealed=sealed)
    with pytest.raises(SecureRefusal, match="3 must; nothing was sent"):
        anna.sessions().answer(reveal.model_copy(update={"signatures": {"ben": signatures["ben"]}}))
    signatures["anna"] = anna.relay.said[-1][1].signature  # type: ignore[attr-defined]
    anna.sessions().answer(reveal.model_copy(update={"signatures": signatures}))
    told = anna.relay.said[-1][1]
    assert isinstance(told, Revelation) and set(told.seeds) == set(NAMES) and not told.keys
    assert [what for what, _ in anna.relay.said] == ["keys", "shares", "confirmation", "revelation"]
    anna.relay.refuses = True  # the others' were enough, and the round went on
    late = SecureRounds(anna.relay, anna.folder, Progress(False), sleep=lambda _: None)  # type: ignore[arg-type]
    with caplog.at_level("INFO", "client_sdk"):
        late.answer(reveal.model_copy(update={"signatures": signatures}))
    assert "round 1 went on without this device's last message, which others can make up for" in caplog.text
    assert "out: " not in caplog.text, "its update was in the sum"


def test_secrets_are_this_users_alone_and_the_same_words_come_again(anna: Anna) -> None:
    anna.shared()
    for name in ("secure.json", "secure-identity.json"):
        assert stat.S_IMODE((anna.folder.path / name).stat().st_mode) == 0o600
    anna.sessions().answer(anna.asked("keys", wire.SecureKeysAssignment))
    anna.sessions().answer(anna.asked("shares", wire.SecureSharesAssignment, peers=anna.peers))
    (_, keys), (_, shares), (_, again), (_, more) = anna.relay.said
    assert keys == again and shares == more and isinstance(shares, Shares)


def test_another_session_has_other_keys_and_the_same_identity(anna: Anna) -> None:
    anna.sessions().answer(anna.asked("keys", wire.SecureKeysAssignment))
    anna.use("ses_2", "mdl_1")
    anna.sessions().answer(anna.asked("keys", wire.SecureKeysAssignment))
    first, second = (said.keys.model_dump() for _, said in anna.relay.said)  # type: ignore[attr-defined]
    assert first["identity"] == second["identity"] == anna.sessions().fingerprint()
    assert all(first[what] != second[what] for what in ("seal", "mask", "commitment", "signature"))


def test_a_mask_is_used_once_whatever_is_lost(anna: Anna) -> None:
    """The device crashed after it had masked an update and before that was in its place: it does not mask another."""
    anna.shared()
    anna.masked()
    with pytest.raises(SittingOut, match="masks are not used again"):
        anna.sessions().prepare(anna.train())
    (anna.folder.path / "secure.json").unlink()
    with pytest.raises(SittingOut, match="secrets for the session are not here"):
        anna.sessions().prepare(anna.train())


def test_an_update_is_not_masked_again_for_other_company(anna: Anna, tmp_path: Path) -> None:
    anna.shared()
    anna.masked()
    anna.use("ses_2", "mdl_1")
    anna.others = {
        name: own.model_copy(update={"session": "ses_2", "peers": None, "sealed": None, "members": None})
        for name, own in anna.others.items()
    }
    anna.shared()
    with pytest.raises(SittingOut, match="two sums could tell it apart"):
        anna.sessions().prepare(anna.train())
    anna.use("ses_2", "mdl_2")
    anna.sessions().prepare(anna.train())


def test_nothing_goes_out_in_the_clear_any_more(anna: Anna) -> None:
    def rounds(**options: Any) -> SecureRounds:
        return SecureRounds(anna.relay, anna.folder, Progress(False), **options)  # type: ignore[arg-type]

    plain = anna.train(secure=None)
    assert rounds().prepare(plain) == (True, None)
    with pytest.raises(SecureRefusal, match="in the clear"):
        rounds(required=True).prepare(plain)
    rounds().answer(anna.asked("keys", wire.SecureKeysAssignment))
    with pytest.raises(SecureRefusal, match="in the clear, and this device's rounds are secure"):
        rounds().prepare(plain)


def test_a_device_that_cannot_take_part_rests_and_says_why(anna: Anna, caplog: pytest.LogCaptureFixture) -> None:
    slept: list[float] = []
    rounds = SecureRounds(anna.relay, anna.folder, Progress(False), sleep=slept.append)  # type: ignore[arg-type]
    with caplog.at_level("INFO", "client_sdk"):
        assert rounds.prepare(anna.train()) == (False, None)
        anna.relay.refuses = True
        rounds.answer(anna.asked("keys", wire.SecureKeysAssignment))
    assert slept == [2.0, 2.0]
    assert "secrets for the session are not here" in caplog.text and "not in its phase" in caplog.text


def test_only_trusted_peers_are_added_up_with(anna: Anna) -> None:
    anna.shared()
    known = {name: keys.identity for name, keys in anna.peers.items()}
    anna.use("ses_2", "mdl_1")
    anna.sessions().answer(anna.asked("keys", wire.SecureKeysAssignment))
    others = {name: own.model_copy(update={"session": "ses_2"}) for name, own in anna.others.items()}
    peers = {"anna": anna.relay.said[-1][1].keys}  # type: ignore[attr-defined]
    peers |= {name: party.advertise(own) for name, own in others.items()}
    asked = anna.asked("shares", wire.SecureSharesAssignment, peers=peers)
    with pytest.raises(SecureRefusal, match="'cleo' comes with the identity key"):
        anna.sessions(known | {"cleo": known["ben"]}).answer(asked)
    anna.sessions(known).answer(asked)


@pytest.mark.parametrize(("weighted", "counted"), [(True, 10), (False, 1)])
def test_an_update_counts_by_its_samples_or_once_as_the_session_says(anna: Anna, weighted: bool, counted: int) -> None:
    anna.weighted, fixed = weighted, FixedPoint(4.0)
    anna.shared()
    anna.masked(value=2.0)
    own = json.loads((anna.folder.path / "secure.json").read_text())["secrets"]
    masks = party.masks(party.Secrets.model_validate(own), fixed).next(4)
    with TensorFile(anna.folder.draft) as file:
        bare = (file.read("w").view(fixed.residues) - masks).view(np.int64)
    assert bare.tolist() == [counted * round(fixed.levels / 2)] * 4, "half of the clip, so many times"


def test_values_beyond_the_clip_are_counted(anna: Anna) -> None:
    anna.shared()
    assert b'"clipped":"4"' in anna.masked(value=5.0)


def test_an_update_that_is_not_finite_is_not_sent(anna: Anna) -> None:
    anna.shared()
    with pytest.raises(SecureRefusal, match="tensor 'w': NaN or infinity"):
        anna.masked(value=float("nan"))
    assert not anna.folder.plain.exists()
