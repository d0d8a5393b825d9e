"""Members: who the teachers are, one function per choice. They are made one at a time, as they are asked for."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from contract.recipes import parts
from contract.seeds import derive_seed
from contract.tensors import write_file
from worker.parts import posterior_files
from worker.parts.blocks import Source
from worker.pipeline.absent import count_together, place_of, registered, together
from worker.pipeline.job import Round, Update, copy_file
from worker.registry import implements
from worker.specs import NetworkRef


@dataclass(frozen=True)
class Teacher:
    """A model that labels server data.

    Attributes:
        name: a client's, or what else it is; shown in errors and figures.
        network: the model.
        num_samples: n_k > 0; 1 for teachers that are no clients.
        scores: file of the client's discriminator scores, where a weighting reads them.
        counted: file of what the clients that it stands for count together, where a weighting counts clients.
        is_group: it is the mean of a group.
        recalibrate: compute its BatchNorm statistics anew on the server set first.
        predictions: file of what it says of the server set, where that came instead of a model (DS-FL).
        client: whose update it is, if it is one.
        said: file of what it says of the sets, tensors by set; of the round's clients it is made while they label.
        factor: what its weights are multiplied by, for its age.
    """

    name: str
    network: NetworkRef
    num_samples: int = 1
    scores: Path | None = None
    recalibrate: bool = False
    predictions: Path | None = None
    client: str | None = None
    counted: Path | None = None
    is_group: bool = False
    said: Path | None = None
    factor: float = 1.0

    @property
    def runs(self) -> bool:
        """Whether its network is asked: not where predictions came, nor where it said before what it says now."""
        return self.predictions is None and (self.said is None or self.client is not None)


@dataclass(frozen=True)
class Members:
    """How many teachers there are, and the teachers; the file of one is gone when the next is asked for."""

    count: int
    teachers: Iterator[Teacher]


def members(job: Round) -> Members:
    """Return the teachers of the recipe's choice, in an order that depends on names alone.

    Raises:
        PartError: while teachers are made; see `worker.parts.posterior_files`.
    """
    distil = job.spec.recipe.distil
    assert distil is not None
    choose: Callable[[Round, Any], Members] = implements.of(distil.members)
    return choose(job, distil.members)


# -------------------------------------------------------------------------------------------------------------- clients
def _client(job: Round, update: Update) -> Teacher:
    scores = job.scores[update.client] if job.spec.recipe.weighs_by_scores else None
    network = job.network(update.prototype, update.model)
    predictions = update.sent if job.spec.recipe.sends_predictions else None
    counted = _balanced(job, update.client)
    return Teacher(
        update.client,
        network,
        update.num_samples,
        scores,
        predictions=predictions,
        client=update.client,
        counted=counted,
        factor=update.factor,
    )


def _balanced(job: Round, client: str) -> Path | None:
    """Write what a client counts where that is no matter of its own scores alone."""
    distil = job.spec.recipe.distil
    if distil is None or not distil.weigh.balances:
        return None
    target = job.spec.output_dir / f"counted-{place_of(job, client)}.safetensors"
    return count_together(job, [client], target)


def _able(job: Round) -> list[Update]:
    """Return the updates whose clients can teach, and note whose cannot."""
    left_out = [each.client for each in job.participants if not _has_scores(job, each)]
    if left_out:
        job.metrics["not_teachers"] = left_out
    return [each for each in job.participants if each.client not in left_out]


@implements(parts.MembersClients)
def _clients(job: Round, _: parts.MembersClients) -> Members:
    found = [_client(job, each) for each in _able(job)]
    return Members(len(found), iter(found))


def participants(job: Round) -> Members:
    """Return the clients of a round in which nobody teaches: their models together are its ensemble."""
    return Members(len(job.participants), iter([_client(job, each) for each in job.participants]))


# ------------------------------------------------------------------------------------------------------- absent clients
@implements(parts.MembersBank)
def _bank(job: Round, _: parts.MembersBank) -> Members:
    """Everybody who is registered and was ever in a round, in the order of their names.

    Those of this round are heard again; what the others said, and what those said who are no longer registered, is in
    the state, or is not there any more.
    """
    known, here = registered(job), {each.client: each for each in _able(job)}
    teachers = []
    for name in sorted(known | here):
        kept = parts.BANK.named(name)
        if name in here:
            job.state[kept] = job.spec.output_dir / f"said-{place_of(job, name)}.safetensors"
            teachers.append(replace(_client(job, here[name]), said=job.state[kept]))
        elif kept in job.state:
            teachers.append(_remembered(job, name, job.state[kept]))
    _forget(job, {each.name for each in teachers})
    job.metrics["bank"] = {"heard": len(here), "remembered": len(teachers) - len(here)}
    return Members(len(teachers), iter(teachers))


def _remembered(job: Round, name: str, said: Path) -> Teacher:
    client = registered(job)[name]
    network = job.prototype(client.prototype).network
    return Teacher(name, network, client.num_samples, client.scores, counted=_balanced(job, name), said=said)


def _forget(job: Round, names: set[str]) -> None:
    """Let go what all but some clients said."""
    prefix = parts.BANK.named("")
    for kept in [each for each in job.state if each.startswith(prefix)]:
        if kept.removeprefix(prefix) not in names:
            del job.state[kept]


@implements(parts.MembersAnchor)
def _anchor(job: Round, _: parts.MembersAnchor) -> Members:
    """The round's clients, and of each prototype the model that they started from, for its absent clients."""
    _forget(job, set())
    here = _able(job)
    teachers, active = [_client(job, each) for each in here], {each.client for each in job.participants}
    clients = registered(job) if job.spec.round_index > 1 else {}
    for number, prototype in enumerate(job.spec.prototypes):
        absent = [name for name, each in clients.items() if each.prototype == prototype.name and name not in active]
        if absent:
            counted = count_together(job, absent, job.spec.output_dir / f"counted-anchor-{number}.safetensors")
            network = job.network(prototype.name, job.base(prototype.name))
            teachers.append(Teacher(f"anchor of {prototype.name}", network, counted=counted, is_group=True))
    return Members(len(teachers), iter(teachers))


# --------------------------------------------------------------------------------------------------------------- groups
def remember_groups(job: Round) -> None:
    """Keep this round's models, as they are before distillation, and forget those of more than R rounds ago (FedSDD).

    A model that nobody trained is kept as it was sent out (eq. 2 with an empty group). Beside a model is kept what its
    clients count, where the weighting reads that: their discriminators and numbers of samples may be gone later.
    """
    distil = job.spec.recipe.distil
    if distil is None or not isinstance(distil.members, parts.MembersGroups):
        return
    for prototype in job.spec.prototypes:
        kept = job.file("past", prototype.name)
        copy_file(job.current(prototype.name), kept)
        job.state[parts.PAST.named(prototype.name, job.spec.round_index)] = kept
        past = job.history(parts.PAST, prototype.name, distil.members.rounds)
        if distil.weigh.counts_clients:
            _remember_clients(job, distil.weigh, prototype.name)
            known = {index for index, _ in past}
            for index, _ in job.history(parts.COUNTED, prototype.name, job.spec.round_index):
                if index not in known:
                    del job.state[parts.COUNTED.named(prototype.name, index)]


def _remember_clients(job: Round, weigh: parts.Weigh, prototype: str) -> None:
    """Keep what a group's clients count on every set: tensors ``<set>.<number of the factor>`` F64 [S]."""
    clients = [each for each in job.updates.get(prototype, []) if _has_scores(job, each)]
    if not clients:
        return
    read = job.spec.recipe.weighs_by_scores
    arrays = together(weigh, [(each.num_samples, job.scores[each.client] if read else None) for each in clients])
    kept = job.file("counted", prototype)
    write_file(kept, arrays)
    job.state[parts.COUNTED.named(prototype, job.spec.round_index)] = kept


def _has_scores(job: Round, update: Update) -> bool:
    return update.client in job.scores or not job.spec.recipe.weighs_by_scores


@implements(parts.MembersGroups)
def _groups(job: Round, choice: parts.MembersGroups) -> Members:
    """Every model of the last R rounds, before distillation: K R of them, for any number of clients (FedSDD eq. 5)."""
    found = [
        Teacher(
            f"{prototype.name} of round {index}",
            job.network(prototype.name, path),
            counted=job.state.get(parts.COUNTED.named(prototype.name, index)),
            is_group=True,
        )
        for prototype in job.spec.prototypes
        for index, path in job.history(parts.PAST, prototype.name, choice.rounds)
    ]
    return Members(len(found), iter(found))


# ------------------------------------------------------------------------------------------------------------ posterior
@implements(parts.MembersPosterior)
def _posterior(job: Round, choice: parts.MembersPosterior) -> Members:
    """Those asked for of clients, mean and samples, of every prototype.

    One client alone is its own mean and its own posterior, and counts once.
    """
    per_prototype = choice.samples + int(choice.mean)
    count = 0
    for updates in job.updates.values():
        count += 1 if len(updates) == 1 else per_prototype + len(updates) * int(choice.clients)
    return Members(count, _posterior_teachers(job, choice))


def _posterior_teachers(job: Round, choice: parts.MembersPosterior) -> Iterator[Teacher]:
    for prototype in job.present:
        name, updates = prototype.name, job.updates[prototype.name]
        if choice.clients or len(updates) == 1:
            yield from (_client(job, update) for update in updates)
        if len(updates) == 1:
            continue
        if choice.mean:
            yield Teacher(f"mean of {name}", job.network(name, job.averages[name]))
        if choice.samples:
            yield from _samples(job, name, choice)


def _samples(job: Round, prototype: str, choice: parts.MembersPosterior) -> Iterator[Teacher]:
    prepare: Callable[[Round, str, parts.MembersPosterior], Draw] = implements.of(choice.posterior)
    draw = prepare(job, prototype, choice)
    target = job.file("sample", prototype)
    for member in range(choice.samples):
        draw(member, target)
        network = job.network(prototype, target)
        name = f"sample {member} of {prototype}"
        yield Teacher(name, network, recalibrate=isinstance(choice.posterior, parts.SampleSwag))
        target.unlink()


Draw = Callable[[int, Path], object]
"""(number of the sample, file to make)."""


def _sources(job: Round, prototype: str) -> list[Source]:
    return [Source(each.client, each.weights, each.num_samples) for each in job.updates[prototype]]


@implements(parts.SampleGaussian)
def _gaussian(job: Round, prototype: str, choice: parts.MembersPosterior) -> Draw:
    assert isinstance(choice.posterior, parts.SampleGaussian)
    scale = choice.posterior.scale
    mean, var, floor = (job.file(f"posterior-{what}", prototype) for what in ("mean", "var", "floor"))
    posterior_files.posterior_files(_sources(job, prototype), mean, var, floor)
    return lambda member, target: posterior_files.gaussian_sample_files(
        mean, var, floor, target, scale=scale, **_drawn_from(job, prototype, member, choice)
    )


@implements(parts.SampleDirichlet)
def _dirichlet(job: Round, prototype: str, choice: parts.MembersPosterior) -> Draw:
    assert isinstance(choice.posterior, parts.SampleDirichlet)
    sources, alpha = _sources(job, prototype), choice.posterior.alpha
    return lambda member, target: posterior_files.dirichlet_sample_files(
        sources, target, alpha=alpha, **_drawn_from(job, prototype, member, choice)
    )


@implements(parts.SampleSwag)
def _swag(job: Round, prototype: str, choice: parts.MembersPosterior) -> Draw:
    assert isinstance(choice.posterior, parts.SampleSwag)
    sources, scale = _sources(job, prototype), choice.posterior.scale
    return lambda member, target: posterior_files.swag_sample_files(
        sources, target, scale=scale, **_drawn_from(job, prototype, member, choice)
    )


def _drawn_from(job: Round, prototype: str, member: int, choice: parts.MembersPosterior) -> dict[str, Any]:
    return {
        "seed": derive_seed(job.spec.seed, "prototype", prototype),
        "round_index": job.spec.round_index,
        "member": member,
        "sample_buffers": choice.sample_batch_norm,
    }
