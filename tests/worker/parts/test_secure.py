"""The protocol of secure aggregation: sums come out exactly whoever leaves, and lies are found."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk.secure import party
from contract.errors import RuleError
from contract.secure import graph, primitives
from contract.secure.fixed import FixedPoint
from contract.tensors import TensorFile, write_file
from tests.client_sdk.secure_sessions import Relay
from worker.parts import blocks, secure
from worker.parts.blocks import Source
from worker.parts.errors import PartError

NAMES = ["anna", "ben", "cleo", "dora", "ede", "fay", "gil"]
FIXED = FixedPoint(8.0)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BUDGET", 1)


def _model(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "w": rng.normal(size=(37, 41)).astype(np.float32),
        "half": rng.normal(size=5).astype(np.float16),
        "bn.num_batches_tracked": np.array(seed, np.int64),
    }


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    found = {}
    for seed, name in enumerate(["base", *NAMES]):
        found[name] = tmp_path / f"{name}.safetensors"
        write_file(found[name], _model(seed))
    return found


def _values(path: Path) -> dict[str, Any]:
    with TensorFile(path) as file:
        return {name: file.read(name) for name in file.names}


def _plain(files: dict[str, Path], weights: dict[str, int], who: list[str], target: Path) -> bytes:
    secure.sum_files([Source(name, files[name], weights[name]) for name in who], files["base"], target, FIXED)
    return target.read_bytes()


@pytest.mark.parametrize(
    ("keys", "shares", "upload", "confirm", "reveal"),
    [
        ([], [], [], [], []),
        (["ben"], [], [], [], []),
        ([], ["ben"], [], [], []),
        ([], [], ["ben", "gil"], [], []),
        ([], [], [], ["anna", "fay"], []),
        ([], [], [], [], ["anna", "fay"]),
        (["anna"], [], ["ben"], [], ["cleo"]),
        ([], ["gil"], ["fay"], [], []),
    ],
    ids=["nobody", "keys", "shares", "upload", "confirm", "reveal", "three-phases", "shares-and-upload"],
)
def test_the_masked_sum_is_the_sum_whoever_leaves(
    files: dict[str, Path],
    tmp_path: Path,
    keys: list[str],
    shares: list[str],
    upload: list[str],
    confirm: list[str],
    reveal: list[str],
) -> None:
    weights = {name: 10 * number + 1 for number, name in enumerate(NAMES)}
    relay = Relay(NAMES, FIXED)
    relay.advertise(without=keys)
    relay.share(without=shares)
    here = {name: path for name, path in files.items() if name not in [*upload, "base"]}
    sent = relay.upload(here, weights, files["base"], tmp_path)
    relay.confirm(without=confirm)
    group = relay.reveal(without=reveal)
    wanted = _plain(files, weights, relay.survivors, tmp_path / "plain")
    for order in (sent, sent[::-1]):
        secure.sum_files(order, files["base"], tmp_path / "sum", FIXED, secure.recover(group))
        assert (tmp_path / "sum").read_bytes() == wanted


def test_the_sum_is_within_half_a_step_of_the_plain_mean(files: dict[str, Path], tmp_path: Path) -> None:
    weights = {name: number + 1 for number, name in enumerate(NAMES)}
    _plain(files, weights, NAMES, tmp_path / "sum")
    found, total = _values(tmp_path / "sum"), sum(weights.values())
    for name, resolution in (("w", 2.0**-23), ("half", 2.0**-10)):
        plain = sum(_values(files[each])[name].astype(np.float64) * weights[each] for each in NAMES) / total
        bound = FIXED.step / 2 + np.abs(plain) * resolution
        assert (np.abs(found[name].astype(np.float64) - plain) <= bound).all()
    counted = sum(seed * weights[name] for seed, name in enumerate(NAMES, start=1)) / total
    assert found["bn.num_batches_tracked"] == round(counted)


def test_a_masked_file_says_nothing_of_its_values(files: dict[str, Path], tmp_path: Path) -> None:
    """Its residues are spread over the whole range; equal updates in two sessions have nothing in common."""
    seen = []
    for _ in range(2):
        relay = Relay(NAMES, FIXED)
        relay.advertise()
        relay.share()
        sent = relay.upload(files, dict.fromkeys(NAMES, 1), files["base"], tmp_path)
        seen.append(_values(sent[0].path)["w"].reshape(-1))
    assert not (seen[0] == seen[1]).any()
    top = np.bincount((seen[0].view(np.uint64) >> np.uint64(60)).astype(np.int64), minlength=16)
    assert top.min() > 50 and top.max() < 150, "1517 values in 16 bins of 95 each"


def test_devices_on_a_sparse_graph(files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "neighbours", lambda count: 6)
    names = [f"device-{number:03}" for number in range(14)]
    for seed, name in enumerate(names):
        files[name] = tmp_path / f"{name}.safetensors"
        write_file(files[name], _model(seed + 20))
    relay, weights = Relay(names, FIXED), dict.fromkeys(names, 5)
    relay.advertise()
    relay.share(without=names[:1])
    here = {name: files[name] for name in names if name not in names[1:2]}
    sent = relay.upload(here, weights, files["base"], tmp_path)
    relay.confirm()
    assert all(len(own.sealed or ()) == 6 for own in relay.devices.values() if own.members)
    group = relay.reveal(without=names[5:6])  # 3 in all are gone: 4 of any 7 are left, wherever the keys put them
    assert all(set(told) <= set(graph.build(group.mask_keys, 2 / 3).holders(n)) for n, told in group.seeds.items())
    secure.sum_files(sent, files["base"], tmp_path / "sum", FIXED, secure.recover(group))
    assert (tmp_path / "sum").read_bytes() == _plain(files, weights, relay.survivors, tmp_path / "plain")


# ----------------------------------------------------------------------------------------------------------------- lies
def _ready(files: dict[str, Path], tmp_path: Path, lost: tuple[str, ...] = ("gil",)) -> Relay:
    relay = Relay(NAMES, FIXED)
    relay.advertise()
    relay.share()
    here = {name: path for name, path in files.items() if name not in (*lost, "base")}
    relay.upload(here, dict.fromkeys(NAMES, 1), files["base"], tmp_path)
    return relay


def test_a_server_that_says_two_things_of_who_dropped_out_gets_nothing(files: dict[str, Path], tmp_path: Path) -> None:
    """It tells three devices that ben uploaded and three that he did not, to get both of his secrets."""
    relay = _ready(files, tmp_path)
    without = [name for name in relay.survivors if name != "ben"]
    lists = {name: relay.survivors if name in ("anna", "ben", "cleo") else without for name in relay.survivors}
    for name, told in lists.items():
        relay.devices[name], signature = party.confirm(relay.devices[name], told)
        relay.signatures[name] = signature.hex()
    for name in relay.survivors:
        with pytest.raises(party.Refusal, match="signed the list of survivors that this one was told; 5 must"):
            party.reveal(relay.devices[name], relay.signatures, relay.sealed_for(name))


def test_a_device_signs_one_list_and_reveals_one_secret_of_each(files: dict[str, Path], tmp_path: Path) -> None:
    relay = _ready(files, tmp_path)
    relay.confirm()
    anna = relay.devices["anna"]
    with pytest.raises(party.Refusal, match="another list"):
        party.confirm(anna, [name for name in relay.survivors if name != "ben"])
    again, signature = party.confirm(anna, relay.survivors[::-1])
    assert again == anna and signature.hex() == relay.signatures["anna"]
    told = party.reveal(anna, relay.signatures, relay.sealed_for("anna")).revealed
    assert told is not None
    assert set(told.seeds) == set(relay.survivors) and set(told.keys) == {"gil"}


def test_nothing_is_revealed_before_enough_have_signed(files: dict[str, Path], tmp_path: Path) -> None:
    relay = _ready(files, tmp_path)
    relay.confirm(without=relay.survivors[2:])
    with pytest.raises(party.Refusal, match="2 devices signed"):
        party.reveal(relay.devices["anna"], relay.signatures, relay.sealed_for("anna"))
    forged = dict.fromkeys(relay.survivors, "ab" * 64)
    with pytest.raises(party.Refusal, match="0 devices signed"):
        party.reveal(relay.devices["anna"], forged, relay.sealed_for("anna"))


def test_too_small_sums_are_refused_at_every_step(files: dict[str, Path], tmp_path: Path) -> None:
    relay = Relay(NAMES[:2], FIXED)
    relay.advertise()
    with pytest.raises(party.Refusal, match="2 devices would be added up; at least 3"):
        relay.share()
    relay = Relay(NAMES, FIXED)
    relay.advertise()
    with pytest.raises(party.Refusal, match="4 devices would be added up; at least 5"):
        relay.share(without=NAMES[4:])
    relay = _ready(files, tmp_path, lost=())
    with pytest.raises(party.Refusal, match="4 devices would be added up; at least 5"):
        party.confirm(relay.devices["anna"], NAMES[:4])
    with pytest.raises(party.Refusal, match="leaves this device out"):
        party.confirm(relay.devices["anna"], NAMES[1:])


def test_keys_that_the_relay_changed_or_made_up_are_refused() -> None:
    relay = Relay(NAMES, FIXED)
    relay.advertise()
    anna, honest = relay.devices["anna"], dict(relay.keys)
    other = party.advertise(party.begin(primitives.fresh(), name="ben", **{**relay.options, "session": "ses_2"}))  # type: ignore[arg-type]
    cases = [
        (honest | {"ben": honest["ben"].model_copy(update={"mask": honest["cleo"].mask})}, "not signed"),
        (honest | {"ben": other}, "not signed"),
        (honest | {"anna": party.advertise(relay.devices["ben"])}, "a key of this device that is not its own"),
        ({name: keys for name, keys in honest.items() if name != "anna"}, "a key of this device that is not its own"),
    ]
    for keys, words in cases:
        with pytest.raises(party.Refusal, match=words):
            party.share(anna, keys)
    trusted = {name: keys.identity for name, keys in honest.items()}
    assert party.share(anna, honest, trusted).sealed is not None
    with pytest.raises(party.Refusal, match="'ben' comes with the identity key .* not among `peers`"):
        party.share(anna, honest, trusted | {"ben": trusted["cleo"]})
    shared = party.share(anna, honest)
    assert party.share(shared, honest) is shared
    with pytest.raises(party.Refusal, match="other keys than before"):
        party.share(shared, {name: keys for name, keys in honest.items() if name != "ben"})


def test_one_identity_in_two_places_is_refused() -> None:
    relay = Relay(NAMES, FIXED)
    relay.advertise()
    ben = relay.devices["ben"]
    twin = ben.model_copy(update={"name": "zoe"})
    with pytest.raises(party.Refusal, match="the same identity key"):
        party.share(relay.devices["anna"], relay.keys | {"zoe": party.advertise(twin)})


def test_members_are_joined_once() -> None:
    relay = Relay(NAMES, FIXED)
    relay.advertise()
    relay.share()
    anna = relay.devices["anna"]
    assert party.join(anna, NAMES) is anna
    with pytest.raises(party.Refusal, match="other members than before"):
        party.join(anna, NAMES[:6])
    fresh = party.share(
        Relay(NAMES, FIXED)
        .devices["anna"]
        .model_copy(update=anna.model_dump(include={"seal", "mask", "seed", "identity"})),
        relay.keys,
    )
    with pytest.raises(party.Refusal, match="keys this device has not seen"):
        party.join(fresh, [*NAMES, "zoe"])


# --------------------------------------------------------------------------------------------------------- false shares
def test_a_false_share_is_found_and_left_out_when_there_are_enough(files: dict[str, Path], tmp_path: Path) -> None:
    relay = _ready(files, tmp_path)
    relay.confirm()
    group = relay.reveal()
    wanted = secure.recover(group)
    liar = dict(group.seeds["anna"]) | {"cleo": group.seeds["anna"]["ben"]}
    lied = secure.Group(**{**group.__dict__, "seeds": {**group.seeds, "anna": liar}})
    assert secure.recover(lied) == wanted
    few = {name: told for name, told in lied.seeds.items() if name in ("anna", "ben", "cleo", "dora", "ede")}
    with pytest.raises(PartError, match="secret of 'cleo' are false"):
        secure.recover(secure.Group(**{**group.__dict__, "seeds": few}))


def test_too_few_shares_are_named(files: dict[str, Path], tmp_path: Path) -> None:
    relay = _ready(files, tmp_path)
    relay.confirm()
    with pytest.raises(PartError, match="4 of 5 shares of the secret of 'anna'"):
        secure.recover(relay.reveal(without=["anna", "ben"]))


def test_a_share_that_was_sealed_falsely_is_left_out(files: dict[str, Path], tmp_path: Path) -> None:
    relay = _ready(files, tmp_path)
    relay.confirm()
    sealed = relay.sealed_for("anna") | {"ben": "00" * 94}
    told = party.reveal(relay.devices["anna"], relay.signatures, sealed).revealed
    assert told is not None and "ben" not in told.seeds and "cleo" in told.seeds


def test_errors_name_the_tensor(files: dict[str, Path], tmp_path: Path) -> None:
    broken = tmp_path / "broken.safetensors"
    write_file(broken, _model(1) | {"w": np.full((37, 41), np.nan, np.float32)})
    with pytest.raises(RuleError, match="tensor 'w': NaN or infinity"):
        secure.sum_files([Source("anna", broken, 1)], files["base"], tmp_path / "sum", FIXED)
    with pytest.raises(PartError, match="'anna'.*'w' is F32"):
        secure.sum_files([Source("anna", files["anna"], 1)], files["base"], tmp_path / "sum", FIXED, [])
