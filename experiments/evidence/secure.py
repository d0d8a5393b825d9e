"""Secure rounds on digits: what masking changes, what it costs in bytes and seconds, with devices that drop out."""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from client_sdk.secure import party
from contract.local import Adam, LocalPlan
from contract.recipes import presets
from contract.secure import primitives
from contract.secure.files import mask_file
from contract.tensors import TensorFile
from contract.wire.plans import SecurePlan
from experiments.evidence.harness import Bench, task_of, with_weights
from experiments.evidence.verdicts import Section, Setting, Verdict, ahead, exactly, level
from potstill.demo.data import CLASSES, SHAPE, split
from worker.masks import SecureGroup, SecureSum
from worker.specs import Datasets, JobResult, NetworkRef, PrototypeSpec, RoundSpec, UpdateSpec

CLIENTS, ALPHA, ROUNDS = 10, 0.5, 5
Spec = Callable[[PrototypeSpec, Sequence[UpdateSpec], int], RoundSpec]
"""(model, updates, round) -> what the plain job of those that did not drop out is told."""
LOST = ("device-8", "device-9")
"""They drop out after they shared their secrets, in every round: their masks must be taken off with them gone."""
NETWORK = NetworkRef(architecture="mlp", options={"hidden": [128, 128]})
LOCAL = LocalPlan(optimizer=Adam(), epochs=20, batch_size=32)
PLAN = SecurePlan()
RECIPE = presets.build("fedavg")
TEXT = """\
FedAvg on scikit-learn's digits: ten devices, Dirichlet(0.5), an MLP 64-128-128-10 (26,122 values), five rounds of 20
local epochs, with the defaults of `rounds.secure`. In every round two devices drop out after they shared their secrets,
so that their keys are put together again. *Masked* goes through the whole protocol, by the functions that devices and
workers run, without HTTP; *plain* averages the same eight devices. Seconds are of one process, in a round: the devices'
side is keys, shares, masks, signatures and shares to reveal of one device, training left out.
"""


@dataclass
class Found:
    """What one seed showed: accuracies by round, and of each masked round its differences and costs."""

    plain: list[float] = field(default_factory=list)
    masked: list[float] = field(default_factory=list)
    furthest: list[float] = field(default_factory=list)
    same: list[bool] = field(default_factory=list)
    plain_bytes: int = 0
    masked_bytes: int = 0
    said_bytes: float = 0.0
    device_seconds: list[float] = field(default_factory=list)
    server_seconds: list[float] = field(default_factory=list)
    plain_seconds: list[float] = field(default_factory=list)


@dataclass
class Masked:
    """A round's masked updates, and what unmasks their sum."""

    updates: list[UpdateSpec]
    group: SecureGroup
    said: int
    seconds: float


def mask(updates: Sequence[UpdateSpec], base: Path, folder: Path, session: str, lost: Sequence[str] = LOST) -> Masked:
    """Let devices go through a session in which some drop out before they upload."""
    begun = time.perf_counter()
    options: dict[str, Any] = {"federation": "fed", "session": session, "model": "main"}
    options |= PLAN.model_dump(include={"threshold", "min_group"})
    own = {each.client: party.begin(primitives.fresh(), name=each.client, **options) for each in updates}
    keys = {name: party.advertise(secrets) for name, secrets in own.items()}
    own = {name: party.join(party.share(secrets, keys), list(own)) for name, secrets in own.items()}
    sent = []
    for each in (each for each in updates if each.client not in lost):
        target = folder / f"masked-{session}-{each.client}.safetensors"
        masks = party.masks(own[each.client], PLAN.fixed)
        mask_file(each.weights, base, target, PLAN.fixed, each.num_samples, masks, {})
        sent.append(each.model_copy(update={"weights": target}))
    here = sorted(each.client for each in sent)
    signed = {name: party.confirm(own[name], here) for name in here}
    signatures = {name: signature.hex() for name, (_, signature) in signed.items()}
    told = {}
    for name in here:
        sealed = {other: (own[other].sealed or {})[name] for other in own if other != name}
        revealed = party.reveal(signed[name][0], signatures, sealed).revealed
        assert revealed is not None
        told[name] = revealed
    said = sum(len(each.model_dump_json()) for each in (*keys.values(), *told.values()))
    said += sum(len(str(secrets.sealed)) for secrets in own.values()) + sum(map(len, signatures.values()))
    group = SecureGroup(
        session=session,
        mask_keys={name: each.mask for name, each in keys.items()},
        commitments={name: each.commitment for name, each in keys.items()},
        members=sorted(own),
        survivors=here,
        seeds={name: each.seeds for name, each in told.items()},
        keys={name: each.keys for name, each in told.items()},
    )
    return Masked(sent, group, said, time.perf_counter() - begun)


def federate(folder: Path, seed: int) -> Found:
    """Return what plain and masked rounds of one seed show."""
    data, found = split(seed, CLIENTS, ALPHA), Found()
    bench = Bench(folder, task_of(CLASSES, *SHAPE), seed)
    first = bench.begin(PrototypeSpec(name="main", network=NETWORK))[0]
    samples = {f"device-{n}": bench.samples(each.inputs, each.labels) for n, each in enumerate(data.clients)}
    datasets = Datasets(test=bench.dataset("test", data.test.inputs, data.test.labels))

    def train(model: PrototypeSpec, index: int) -> list[UpdateSpec]:
        return [bench.train(name, model, each, LOCAL, index=index) for name, each in samples.items()]

    def spec(model: PrototypeSpec, updates: Sequence[UpdateSpec], index: int) -> RoundSpec:
        kept = [each for each in updates if each.client not in LOST]
        return bench.round_spec(
            RECIPE, [model], kept, datasets=datasets, round_index=index, rounds_total=ROUNDS, local=LOCAL
        )

    plain = masked = first
    for index in range(1, ROUNDS + 1):
        updates = train(plain, index)
        result, seconds = _timed(bench, spec(plain, updates, index))
        found.plain.append(result.metrics["accuracy"])
        found.plain_seconds.append(seconds)
        found.plain_bytes = updates[0].weights.stat().st_size
        plain = with_weights(plain, result.models["main"])
        masked = _masked_round(bench, masked, train(masked, index), spec, index, found)
    return found


def _masked_round(
    bench: Bench,
    model: PrototypeSpec,
    updates: Sequence[UpdateSpec],
    spec: Spec,
    index: int,
    found: Found,
) -> PrototypeSpec:
    base = model.network.weights
    assert base is not None
    hidden = mask(updates, base, bench.folder, f"round-{index}")
    told, here = spec(model, updates, index), {"updates": hidden.updates}
    sums = SecureSum(plan=PLAN, groups={"main": hidden.group})
    result, seconds = _timed(bench, told.model_copy(update=here | {"secure": sums}))
    again = spec(model, updates, index).model_copy(update={"secure": SecureSum(plan=PLAN)})
    found.same.append(_bytes(bench.run(again)) == _bytes(result))
    found.furthest.append(_furthest(bench.run(spec(model, updates, index)).models["main"], result.models["main"]))
    found.masked.append(result.metrics["accuracy"])
    found.masked_bytes = hidden.updates[0].weights.stat().st_size
    found.said_bytes = hidden.said / CLIENTS
    found.device_seconds.append(hidden.seconds / CLIENTS)
    found.server_seconds.append(seconds)
    return with_weights(model, result.models["main"])


def _timed(bench: Bench, spec: RoundSpec) -> tuple[JobResult, float]:
    begun = time.perf_counter()
    return bench.run(spec), time.perf_counter() - begun


def _bytes(result: JobResult) -> bytes:
    return result.models["main"].read_bytes()


def _furthest(one: Path, other: Path) -> float:
    """Return the largest difference of two models' values."""
    with TensorFile(one) as left, TensorFile(other) as right:
        return max(float(np.max(np.abs(left.read(name).astype(np.float64) - right.read(name)))) for name in left.names)


def run(setting: Setting) -> Section:
    """Plain and masked FedAvg, seed by seed."""
    runs = []
    for seed in setting.seeds:
        setting.progress(f"secure rounds, seed {seed}")
        with tempfile.TemporaryDirectory(dir=setting.folder) as folder:
            runs.append(federate(Path(folder), seed))
    return Section(TEXT, judge(runs))


def judge(runs: Sequence[Found]) -> list[Verdict]:
    """Return the verdicts: of each seed, the mean over its last three rounds."""
    plain, masked = ([mean(accuracies[-3:]) for accuracies in of] for of in _curves(runs))
    furthest, same = max(max(run.furthest) for run in runs), all(all(run.same) for run in runs)
    difference = ahead("masked minus plain FedAvg", -1.0, masked, plain, "–")
    bound = PLAN.fixed.step / 2 + 2.0**-24
    return [
        difference,
        level("plain FedAvg, mean of the last three rounds", None, plain, "–"),
        level("masked FedAvg, mean of the last three rounds", None, masked, "–"),
        exactly("masked sums equal those without masks", "every byte", "equal" if same else "differ", same),
        exactly(
            "furthest value from the plain mean of the same updates", f"≤ {bound:.1e}", f"{furthest:.1e}",
            furthest <= bound, "half a step and half a float32",
        ),
        *_costs(runs),
    ]  # fmt: skip


def _curves(runs: Sequence[Found]) -> tuple[list[list[float]], list[list[float]]]:
    return [run.plain for run in runs], [run.masked for run in runs]


def _costs(runs: Sequence[Found]) -> list[Verdict]:
    one = runs[0]
    costs: Mapping[str, str] = {
        "bytes of an update, plain": f"{one.plain_bytes:,}",
        "bytes of an update, masked (eight a value)": f"{one.masked_bytes:,}",
        "bytes that a device says beside it": f"{one.said_bytes:,.0f}",
        "seconds of a device beside training": f"{mean(s for run in runs for s in run.device_seconds):.2f}",
        "seconds of the server's job, masked": f"{mean(s for run in runs for s in run.server_seconds):.2f}",
        "seconds of the server's job, plain": f"{mean(s for run in runs for s in run.plain_seconds):.2f}",
    }
    return [Verdict(what, "–", ours, "–", None) for what, ours in costs.items()]
