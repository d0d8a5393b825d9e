"""Federations of the same length side by side: seeds and arms, each with its data, loss and weights of teachers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from client_sdk.objectives import prior
from contract.measures import softmax
from contract.wire.plans import RoundsPlan
from experiments.stacked import odds
from experiments.stacked.network import Weights, begin, distil, forward, patches, stack, statistics, take, train
from potstill.demo.data import CLASSES
from potstill.simulate import experiment, liars
from potstill.simulate.experiment import Dealt
from potstill.simulate.settings import Experiment
from service.domain.selection import choose
from worker.parts.balance import balance
from worker.parts.weigh import log_entropy_weight, log_odds, normalise

Array = NDArray[Any]


@dataclass(frozen=True)
class Case:
    """One seed's data, and what was made of it before the rounds.

    Attributes:
        counts: samples of each client and class [N, C], of the labels that it trains on.
        images, labels: of each client; patches.
        server, test: patches; `truth` of the server, which only the measures read, and `test_labels`.
        scores: of the discriminators [N, S], of one sigmoid; `capped` of two.
        asked: clients of each round.
        flipped: clients that send the opposite of their change.
    """

    seed: int
    counts: Array
    images: Sequence[Tensor]
    labels: Sequence[Tensor]
    server: Tensor
    truth: Array
    test: Tensor
    test_labels: Tensor
    scores: Array
    capped: Array
    asked: Sequence[Sequence[int]]
    flipped: frozenset[int] = frozenset()

    @property
    def sizes(self) -> Array:
        """n_k [N]."""
        return np.asarray(self.counts.sum(axis=1), np.float64)

    def plain(self, scale: float = 1.0) -> Array:
        """Return ln n_k + ln Phi_k [N, S], the logarithms of the odds times `scale`."""
        return np.asarray(np.log(self.sizes)[:, None] + scale * log_odds(self.scores, "sigmoid"))


@dataclass
class Seen:
    """What the server knows when it labels.

    Attributes:
        active: clients of the round.
        said: logits [S, C] of each client that was ever in one, as it said last.
        rounds: in which round that was.
        before: logits [S, C] of the model that the round began from.
    """

    active: list[int]
    said: dict[int, Array]
    rounds: dict[int, int]
    before: Array


Labels = Callable[[Case, Seen], Array]
"""-> pseudo-labels, probabilities [S, C]"""


@dataclass(frozen=True)
class Arm:
    """What is compared.

    Attributes:
        labels: of the server's images; None: the average is the model.
        weight: lambda of the clients' loss, 0 for plain cross-entropy.
    """

    labels: Labels | None
    weight: float = 0.0


@dataclass
class Course:
    """Accuracies in [0, 1] after each round: of the model on the test set, of the pseudo-labels on the server's."""

    model: list[float] = field(default_factory=list)
    labels: list[float] = field(default_factory=list)


def mixed(weights: Array, logits: Array) -> Array:
    """Return the softmax of the weighted mean of logits [m, S, C], by log weights [m, S]."""
    found = (normalise(list(weights))[..., None] * logits).sum(axis=0)
    return np.asarray(softmax(found))


def by(logs: Callable[[Case], Array], bank: bool = False, tau: float | None = None) -> Labels:
    """Return labels by log weights [N, S] of the round's clients, or of all that were seen, with confidence or not."""
    kept: dict[int, Array] = {}

    def labels(case: Case, seen: Seen) -> Array:
        who = sorted(seen.said if bank else seen.active)
        said, all_ = np.stack([seen.said[client] for client in who]), kept.setdefault(id(case), logs(case))
        return mixed(all_[who] + (0.0 if tau is None else log_entropy_weight(said, tau)), said)

    return labels


def balanced(scale: float = 1.0) -> Callable[[Case], Array]:
    """Return the rule of balanced odds, their logarithms times `scale` before."""
    return lambda case: balance(case.plain(scale), case.sizes, 50).logs


def capped(case: Case) -> Array:
    """Return ln n_k + ln Phi_k [N, S] of two sigmoids."""
    return np.asarray(np.log(case.sizes)[:, None] + log_odds(case.capped))


def equal(case: Case) -> Array:
    """Return zeros [N, S]: every teacher counts alike (FedDF)."""
    return np.zeros_like(case.scores)


def true_counts(case: Case) -> Array:
    """Return ln n_kc of each image's class, -30 where there is none: perfect weights, which nobody knows."""
    return np.log(np.maximum(case.counts, np.exp(-30.0)))[:, case.truth]


def dealt_of(told: Mapping[str, Any], seed: int) -> Dealt:
    """Return the data of one seed of an experiment of `potstill simulate`."""
    wanted = _experiment(told)
    return experiment.deal(wanted, experiment.load(wanted), seed)


def _experiment(told: Mapping[str, Any]) -> Experiment:
    return Experiment.model_validate({"recipes": [{"name": "fedavg"}], **told})


def case_of(told: Mapping[str, Any], seed: int) -> Case:
    """Return a seed's case of an experiment on the digits, with its liars."""
    wanted, dealt = _experiment(told), dealt_of(told, seed)
    names = sorted(dealt.clients)
    labels = [torch.as_tensor(dealt.clients[name].labels, dtype=torch.long) for name in names]
    lying = [names.index(name) for name in liars.choose(names, wanted.liars, seed)]
    if wanted.lie == "label-shift":
        labels = [(each + 1) % CLASSES if place in lying else each for place, each in enumerate(labels)]
    scores, capped = _scores(dealt, seed)
    if wanted.lie == "discriminator":
        scores[lying] = capped[lying] = liars.SURE
    sizes = {name: len(each) for name, each in dealt.clients.items()}
    plan = RoundsPlan(total=wanted.rounds, clients_per_round=wanted.clients_per_round)
    return Case(
        seed=seed,
        counts=np.stack([np.bincount(each.numpy(), minlength=CLASSES) for each in labels]),
        images=[patches(torch.as_tensor(dealt.clients[name].inputs)) for name in names],
        labels=labels,
        server=patches(torch.as_tensor(dealt.server.inputs)),
        truth=dealt.server.labels,
        test=patches(torch.as_tensor(dealt.test.inputs)),
        test_labels=torch.as_tensor(dealt.test.labels),
        scores=scores,
        capped=capped,
        asked=[[names.index(each) for each in choose(plan, seed, index + 1, sizes)] for index in range(plan.total)],
        flipped=frozenset(lying if wanted.lie == "sign-flip" else ()),
    )


def _scores(dealt: Dealt, seed: int) -> tuple[Array, Array]:
    server = torch.as_tensor(dealt.server.inputs).reshape(len(dealt.server), -1) * 2 - 1
    made = odds.generator(server, seed)
    one, two = (odds.scores(dealt, made, seed, capped=capped).numpy() for capped in (False, True))
    return one, two


def run(cases: Sequence[Case], arms: Mapping[str, Arm]) -> dict[str, list[Course]]:
    """Run every arm on every case, all at once; return their courses by arm, in the order of the cases."""
    pairs = [(case, arm) for arm in arms.values() for case in cases]
    model = stack([begin(case.seed + 12345) for case, _ in pairs])
    norms = statistics(len(pairs))
    server = torch.stack([case.server for case, _ in pairs])
    courses, said = [Course() for _ in pairs], [dict[int, Array]() for _ in pairs]
    rounds = [dict[int, int]() for _ in pairs]
    learning = torch.tensor([place for place, (_, arm) in enumerate(pairs) if arm.labels is not None])
    for index in range(len(cases[0].asked)):
        with torch.no_grad():
            before = forward(model, server, norms).double().numpy()
        work = [(place, client) for place, (case, _) in enumerate(pairs) for client in case.asked[index]]
        sent, kept = _trained(pairs, work, model, norms, index)
        targets = []
        for place, (case, arm) in enumerate(pairs):
            mine = torch.tensor([each for each, (owner, _) in enumerate(work) if owner == place])
            active = list(case.asked[index])
            with torch.no_grad():
                images = case.server[None].expand(len(mine), -1, -1, -1)
                logits = forward(take(sent, mine), images, take(kept, mine)).double().numpy()
            said[place] |= dict(zip(active, logits, strict=True))
            rounds[place] |= dict.fromkeys(active, index)
            if arm.labels is not None:
                found = arm.labels(case, Seen(active, said[place], rounds[place], before[place]))
                targets.append(torch.as_tensor(found, dtype=torch.float32))
                courses[place].labels.append(float((found.argmax(axis=1) == case.truth).mean()))
        model, norms = _average(pairs, work, sent), _average(pairs, work, kept)
        _learn(model, norms, learning, server, targets, index)
        _measure(pairs, model, norms, courses)
    size = len(cases)
    return {name: courses[place * size : (place + 1) * size] for place, name in enumerate(arms)}


def _trained(
    pairs: Sequence[tuple[Case, Arm]], work: Sequence[tuple[int, int]], model: Weights, norms: Weights, index: int
) -> tuple[Weights, Weights]:
    """Return what the clients of a round send: (pair, client) by (pair, client)."""
    owners = torch.tensor([place for place, _ in work])
    counts = [torch.as_tensor(pairs[place][0].counts[client]) for place, client in work]
    weights = [pairs[place][1].weight for place, _ in work]
    offsets = torch.stack([prior.offset(each, weight) for each, weight in zip(counts, weights, strict=True)])
    seeds = (pairs[place][0].seed * 1_000_003 + index * 1009 + client for place, client in work)
    sent, kept = train(
        take(model, owners),
        take(norms, owners),
        [pairs[place][0].images[client] for place, client in work],
        [pairs[place][0].labels[client] for place, client in work],
        offsets,
        [torch.Generator().manual_seed(seed) for seed in seeds],
    )
    for each, (place, client) in enumerate(work):
        if client in pairs[place][0].flipped:
            for name, value in sent.items():
                value[each] = 2 * model[name][place] - value[each]
    return sent, kept


def _average(pairs: Sequence[tuple[Case, Arm]], work: Sequence[tuple[int, int]], sent: Weights) -> Weights:
    """Return the mean of each pair's clients by n_k."""
    sizes = torch.tensor([pairs[place][0].sizes[client] for place, client in work]).view(len(pairs), -1)
    shares = (sizes / sizes.sum(1, keepdim=True)).float()[..., None, None]
    return {name: (value.view(*shares.shape[:2], *value.shape[1:]) * shares).sum(1) for name, value in sent.items()}


def _learn(
    model: Weights, norms: Weights, learning: Tensor, server: Tensor, targets: Sequence[Tensor], index: int
) -> None:
    """Distil into the models of those that learn, in place."""
    if not targets:
        return
    students, kept = take(model, learning), take(norms, learning)
    distil(students, kept, server[learning], torch.stack(list(targets)), torch.Generator().manual_seed(777 + index))
    for all_, some in ((model, students), (norms, kept)):
        for name, value in some.items():
            all_[name][learning] = value


def _measure(pairs: Iterable[tuple[Case, Arm]], model: Weights, norms: Weights, courses: Sequence[Course]) -> None:
    tested = torch.stack([case.test for case, _ in pairs])
    with torch.no_grad():
        found = forward(model, tested, norms).argmax(-1)
    for (case, _), guessed, course in zip(pairs, found, courses, strict=True):
        course.model.append(float((guessed == case.test_labels).float().mean()))
