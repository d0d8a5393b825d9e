"""A recipe: the whole composition of parts that fuses a round. It travels as JSON and is stored with its models."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from contract.bounds import ID
from contract.choices import Choice, Need, Options, choices_of, kind_of, walk
from contract.local import Link
from contract.notes import Remark, Setting
from contract.recipes import parts


class Distillation(Options):
    """The part of a recipe that runs networks: teachers label server data, students learn from the labels."""

    members: parts.Members = parts.MembersClients()
    weigh: parts.Weigh = parts.WeighUniform()
    combine: parts.Combine = parts.CombineLogits()
    objective: parts.DistilObjective = parts.ObjectiveKl()
    students: parts.Students = parts.StudentsPrototypes()
    data: parts.Data = parts.DataUnlabeled()
    schedule: parts.Schedule = parts.Schedule(epochs=10)


class Recipe(Options):
    """How a round becomes the next global model.

    `distil` is null for recipes that only average, `discriminators` where nothing reads them or their generator.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.+_-]{0,63}$", max_length=ID, examples=["fedgo"])
    selection: Literal["uniform", "samples"] = Field(
        "uniform", description="how clients are drawn: alike, or in proportion to their samples (Fed-ET)"
    )
    groups: parts.Groups = parts.GroupsPrototype()
    drop_worst: parts.DropWorst | None = Field(
        None, description="leave out models that are no better than chance on the validation set (FedDF)"
    )
    fuse: parts.Fuse = parts.FuseWeightedMean()
    distil: Distillation | None = None
    discriminators: parts.Discriminators | None = None

    @property
    def needs(self) -> frozenset[Need]:
        """What its choices cannot do without."""
        return frozenset(need for choice in walk(self) for need in choice.needs)

    @property
    def needs_networks(self) -> bool:
        """Whether fusing a round runs a network, and thus needs torch and registered architectures."""
        return self.distil is not None or self.drop_worst is not None or "networks" in self.needs

    @property
    def sends_predictions(self) -> bool:
        """Whether devices send predictions on the server set, whose inputs they are given, instead of weights."""
        return not self.fuse.averages

    @property
    def weighs_by_scores(self) -> bool:
        """Whether a weighting reads what clients' discriminators say."""
        return "scores" in self.needs

    @property
    def reads_scores(self) -> bool:
        """Whether clients train discriminators before the first round: a weighting reads them, and no update brings
        one. If not, nobody does, whatever `discriminators` is for.
        """
        return self.weighs_by_scores and not self.fuse.judges

    @property
    def draws_anew(self) -> bool:
        """Whether every round draws samples of its own from a generator that was made before the first."""
        return self.distil is not None and self.distil.data.drawn_anew and not self.fuse.judges

    @property
    def counts_absent(self) -> bool:
        """Whether rounds read of all registered clients what they have, not of those that took part alone."""
        distil = self.distil
        return distil is not None and (distil.members.counts_absent or distil.weigh.balances)

    @property
    def needs_unlabeled(self) -> bool:
        """Whether the unlabelled server set is read: by teachers and students, or to train the generator."""
        distil, stage = self.distil, self.discriminators
        labels = distil is not None and distil.students.learns and "unlabeled" in distil.data.needs
        return labels or (stage is not None and "unlabeled" in stage.generator.needs)

    @property
    def needs_labels(self) -> bool:
        """Whether students learn the labels that the server set, named as `unlabeled`, has of its own."""
        return self.distil is not None and self.distil.students.learns and self.distil.data.labelled

    def remarks(self, setting: Setting) -> Iterator[Remark]:
        """The filter of models goes without a set to judge on."""
        if self.drop_worst is not None and "validation" not in setting.sets:
            yield Remark(
                "drop_worst",
                "left out: every model that comes is averaged and teaches",
                "it judges models on datasets.validation, and there is none; name one for it",
                becomes=None,
            )

    @model_validator(mode="after")
    def _mixture_is_possible(self) -> "Recipe":
        if self.drop_worst is not None and isinstance(self.fuse, parts.FuseScaffold):
            raise ValueError("drop_worst: a client that is left out has changed its control variate; not with scaffold")
        for check in (
            _check_discriminators,
            _check_links,
            _check_schedule,
            _check_fed_et,
            _check_groups,
            _check_members,
            _check_absent,
            _check_labelled,
            _check_predictions,
        ):
            check(self)
        return self


def _factors(recipe: Recipe) -> Sequence[parts.WeighChoice]:
    return () if recipe.distil is None else recipe.distil.weigh.factors_of


def _kinds(slot: type[Choice], need: Need) -> str:
    """Return the choices of a slot that need something, in words."""
    return " and ".join(
        sorted((kind_of(each) for each in choices_of(slot) if need in each.declares.needs), reverse=True)
    )


def _check_discriminators(recipe: Recipe) -> None:
    distil = recipe.distil
    if recipe.fuse.judges:
        _check_judged(recipe)
        return
    generated = distil is not None and distil.students.learns and "generator" in distil.data.needs
    if recipe.reads_scores and recipe.discriminators is None:
        readers = _kinds(parts.WeighChoice, "scores")
        raise ValueError(f"distil.weigh: {readers} read discriminators; add the part 'discriminators'")
    if generated and recipe.discriminators is None:
        raise ValueError("distil.data: generated data need a generator; add the part 'discriminators'")
    if recipe.discriminators is not None and not recipe.reads_scores and not generated:
        raise ValueError("discriminators: no weighting reads them; leave the part out or weigh by 'odds'")


def _check_judged(recipe: Recipe) -> None:
    """Refuse what is for generators and discriminators that are made before the rounds."""
    kind = f"fuse: with {recipe.fuse.kind!r} devices train generator and discriminator in every round"
    if recipe.discriminators is not None:
        raise ValueError(f"{kind}; leave out the part 'discriminators'")
    data = None if recipe.distil is None else recipe.distil.data
    if data is not None and "generator" in data.needs and not data.drawn_anew:
        raise ValueError(f"{kind}, so samples are another generator's each time; set distil.data.fresh to true")
    if any(getattr(factor, "link", None) == "prob" for factor in _factors(recipe)):
        raise ValueError(f"{kind}, which gives raw scores; take link 'sigmoid' in place of 'prob'")


def _link_of(factor: parts.WeighChoice) -> Link:
    """Return how a weighting reads a discriminator's output."""
    link: Link = getattr(factor, "link", "sigmoid")
    return link


def _check_links(recipe: Recipe) -> None:
    """Refuse weightings that read one discriminator's output as a raw score and as a probability."""
    readers = parts.WeighOdds | parts.WeighDafkd | parts.WeighBalancedOdds
    read = [(factor.kind, _link_of(factor)) for factor in _factors(recipe) if isinstance(factor, readers)]
    raw = [f"{kind} with link {link!r}" for kind, link in read if link != "prob"]
    if 0 < len(raw) < len(read):
        raise ValueError(
            f"distil.weigh: link 'prob' reads probabilities, {raw[0]} raw scores, and each client has one "
            "discriminator; take link 'sigmoid' in place of 'prob'"
        )


def _check_schedule(recipe: Recipe) -> None:
    if recipe.distil is None:
        return
    schedule = recipe.distil.schedule
    if (schedule.epochs is None) == (schedule.steps is None):
        raise ValueError("distil.schedule: give either epochs or steps")
    if schedule.swa is not None and schedule.early_stop is not None:
        raise ValueError("distil.schedule: swa averages the end of a run, early_stop leaves it; take one of them")


def _check_fed_et(recipe: Recipe) -> None:
    if recipe.distil is None:
        return
    consensus = recipe.distil.combine.kind == "consensus"
    if consensus != (recipe.distil.objective.kind == "fedet"):
        raise ValueError("distil: combine 'consensus' and objective 'fedet' go together (Fed-ET eq. 4 to 9)")


def _check_groups(recipe: Recipe) -> None:
    distil, grouped = recipe.distil, recipe.groups.kind == "random"
    if distil is None:
        return
    if distil.members.are_groups and not grouped:
        raise ValueError("distil.members: 'groups' are the means of random groups; set groups to 'random'")
    if distil.students.kind == "main" and not grouped:
        raise ValueError("distil.students: 'main' is model 0 of several; set groups to 'random'")


def _check_members(recipe: Recipe) -> None:
    distil = recipe.distil
    if distil is None:
        return
    members = distil.members
    if distil.weigh.counts_clients and not (members.are_clients or members.are_groups or members.counts_absent):
        counts = f"{_kinds(parts.WeighChoice, 'scores')} weigh clients"
        counts = counts if recipe.weighs_by_scores else "'samples' counts clients' samples"
        raise ValueError(f"distil.weigh: {counts}; set distil.members to 'clients', or 'groups' of them")
    if isinstance(members, parts.MembersPosterior) and not (members.clients or members.mean or members.samples):
        raise ValueError("distil.members: nobody teaches; set clients or mean to true, or samples above 0")
    if (
        isinstance(members, parts.MembersGroups)
        and members.rounds > 1
        and distil.data.drawn_anew
        and recipe.weighs_by_scores
    ):
        raise ValueError(
            "distil.data.fresh: discriminators scored other samples in the rounds before, whose groups teach too; set "
            "distil.members.rounds to 1, or fresh to false"
        )
    if isinstance(distil.data, parts.DataNoise) and not distil.data.low < distil.data.high:
        raise ValueError("distil.data: noise lies between low and high; high must be above low")


def _check_absent(recipe: Recipe) -> None:
    """Refuse what would need more of an absent client than its discriminator, or a server set that changes."""
    distil = recipe.distil
    if distil is None or not recipe.counts_absent:
        return
    balanced = "distil.weigh: 'balanced_odds' reads what all discriminators say of the whole set"
    if distil.weigh.balances and (distil.members.are_groups or not distil.students.learns):
        raise ValueError(f"{balanced}; take members 'clients', 'bank' or 'anchor', and students that learn it")
    if sum(factor.balances for factor in distil.weigh.factors_of) > 1:
        raise ValueError("distil.weigh: 'balanced_odds' twice is once, more sharply; name it once")
    what = balanced if distil.weigh.balances else f"distil.members: {distil.members.kind!r} counts absent clients"
    if recipe.fuse.judges:
        raise ValueError(f"{what}, and with fuse {recipe.fuse.kind!r} those of a round alone send one; take 'odds'")
    if recipe.draws_anew:
        raise ValueError(f"{what}, and samples are drawn anew in every round; set distil.data.fresh to false")
    if recipe.groups.kind == "random":
        raise ValueError(f"{what}, and random groups have no clients of their own; set groups to 'prototype'")


def _check_labelled(recipe: Recipe) -> None:
    """Refuse what reads teachers where students learn a set's own labels."""
    distil, only = recipe.distil, "distil.data: with 'labeled' students learn the set's own labels"
    if distil is None or not distil.data.labelled:
        return
    if not distil.students.learns:
        raise ValueError(f"{only}, and with students 'none' nobody learns; take data 'unlabeled'")
    if recipe.sends_predictions:
        raise ValueError(f"{only}, and devices would be sent those; take data 'unlabeled' where fuse is 'predictions'")
    if recipe.weighs_by_scores or recipe.discriminators is not None:
        raise ValueError(f"{only}, and discriminators weigh teachers; set weigh to 'uniform', discriminators to null")
    if distil.combine.kind == "consensus":
        raise ValueError(f"{only}, and Fed-ET's loss reads a consensus; take combine 'logits' and objective 'kl'")


def _check_predictions(recipe: Recipe) -> None:
    """Refuse whatever would need weights where only predictions come (DS-FL)."""
    if not recipe.sends_predictions:
        return
    distil, only = recipe.distil, "fuse: 'predictions' brings no weights"
    if distil is None:
        raise ValueError(f"{only}, so the server's model can but learn from them; add the part 'distil'")
    if recipe.groups.kind != "prototype" or recipe.drop_worst is not None:
        raise ValueError(f"{only} to group or to judge; leave out groups and drop_worst")
    if recipe.discriminators is not None:
        raise ValueError(f"{only}, and devices read the server set itself; leave out discriminators")
    if not distil.members.are_clients:
        raise ValueError(f"{only} to make other teachers of; set distil.members to 'clients'")
    if distil.students.kind not in ("prototypes", "prototypes_and_server", "all"):
        raise ValueError(f"{only} to average; set distil.students to 'prototypes', 'prototypes_and_server' or 'all'")
    if isinstance(distil.students, parts.StudentsAll) and distil.students.warmup_rounds:
        raise ValueError(f"{only}, so nothing changes without distillation; set students.warmup_rounds to 0")


def discriminator_link(recipe: Recipe) -> Link:
    """Return the link through which discriminators are trained: that of odds, before that of `dafkd`."""
    read = _factors(recipe)
    for weighting in (parts.WeighOdds, parts.WeighDafkd):
        for factor in read:
            if isinstance(factor, weighting):
                return factor.link
    return "sigmoid"


def merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return `base` with `changes` laid over it, nested.

    A changed `kind` replaces that part whole, and another architecture begins with its own defaults.
    """
    result = dict(base)
    for key, value in changes.items():
        if key.endswith("architecture") and base.get(key, value) != value:
            result[f"{key.removesuffix('architecture')}options"] = {}
    for key, value in changes.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, dict) and value.get("kind", old.get("kind")) == old.get("kind"):
            result[key] = merge(old, value)
        else:
            result[key] = value
    return result
