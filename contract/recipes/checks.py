"""Mixtures that are possible in themselves but not with a federation's local plan, data or networks."""

from collections.abc import Mapping

from contract.choices import choices_of, walk
from contract.local import LocalPlan, check_exposed
from contract.recipes import parts
from contract.recipes.errors import RecipeError
from contract.recipes.recipe import Recipe
from contract.tasks import OF_VECTORS, TaskKind


def runs_ahead(recipe: Recipe, local: LocalPlan) -> bool:
    """Whether groups may start a round while the main model of the one before is distilled (FedSDD App. A.6).

    The averages of their models must be final once they are made, and all that their clients need.
    """
    groups, distil = recipe.groups, recipe.distil
    if not isinstance(groups, parts.GroupsRandom) or not groups.overlap or distil is None:
        return False
    return isinstance(distil.students, parts.StudentsMain) and not local.objective.declares.reads


def check_with_local(recipe: Recipe, local: LocalPlan) -> None:
    """Refuse a recipe that does not go with what the clients run.

    Raises:
        RecipeError: names the part and the remedy.
    """
    fuse, objective = recipe.fuse, local.objective
    for choice, other in ((fuse, objective), (objective, fuse)):
        partner = choice.declares.partner
        if partner is not None and other.kind != partner.kind:
            raise RecipeError("fuse", partner.missing)
    if local.precision is not None and local.precision.error_feedback:
        raise RecipeError(
            "local.precision.error_feedback",
            "what rounding lost of a model's weights says nothing of the next model's, and made rounds worse or no "
            "better (docs/evidence.md); leave it out",
        )
    for part in walk(recipe):
        try:
            check_exposed(local, part)
        except ValueError as error:
            raise RecipeError("local.privacy", str(error).removeprefix("privacy: ")) from None
    try:
        fuse.check_local(local)
    except ValueError as error:
        raise RecipeError("fuse", str(error)) from None


def check_with_task(recipe: Recipe, local: LocalPlan, kind: TaskKind) -> None:
    """Refuse what has no meaning for a kind of task.

    Raises:
        RecipeError: names the part, why, and what to take instead.
    """
    for choice in walk([recipe, local]):
        only = choice.only
        if only is not None and kind not in only.kinds:
            what = f"{choice.kind!r} has no meaning for a task of kind {kind!r}: {only.why}"
            raise RecipeError(choice.slot, f"{what}; take {only.instead}")
    if recipe.drop_worst is not None and kind != "classification":
        raise RecipeError("drop_worst", f"it compares accuracies with chance, which {kind!r} has not; leave it out")
    distil = recipe.distil
    if distil is not None and kind == "dense" and distil.data.augment != parts.Augment():
        raise RecipeError("distil.data.augment", "pixels' labels do not move with the mirrored image; leave it out")
    if local.privacy is not None and kind not in OF_VECTORS:
        what = f"a loss of kind {kind!r} is a mean over labelled positions, in which no sample's share is bounded"
        raise RecipeError("local.privacy", f"{what}; leave it out")


def check_with_data(
    recipe: Recipe,
    *,
    has_validation: bool,
    has_unlabeled: bool,
    has_server_model: bool,
    is_image: bool = True,
    is_tokens: bool = False,
) -> None:
    """Refuse a recipe that the federation's data sets and networks cannot serve.

    Args:
        recipe: the composition.
        has_validation: a labelled validation set is there.
        has_unlabeled: an unlabelled server set is there.
        has_server_model: the federation names a server_model.
        is_image: inputs are [channels, height, width], no token ids.
        is_tokens: inputs are token ids.

    Raises:
        RecipeError: names the part and the remedy.
    """
    _check_sets(recipe, has_validation, has_unlabeled)
    distil = recipe.distil
    wants_server = distil is not None and distil.students.trains_server
    if distil is not None and wants_server and not has_server_model:
        kind = distil.students.kind
        raise RecipeError("distil.students", f"{kind!r} trains a model of the server; name server_model")
    if has_server_model and not wants_server:
        raise RecipeError(
            "distil.students",
            "server_model is trained by students 'server' and 'prototypes_and_server' alone; leave it out",
        )
    if distil is not None and not is_image and distil.data.augment != parts.Augment():
        raise RecipeError("distil.data.augment", "mirrors and crops images [C, H, W]; this task has other inputs")
    if not is_image:
        _check_flips(recipe)
    if distil is not None and is_tokens and isinstance(distil.data, parts.DataNoise):
        raise RecipeError("distil.data", "noise is of floats, and this task reads token ids; take 'unlabeled'")


def _check_flips(recipe: Recipe) -> None:
    """Refuse to mirror what is no image."""
    stage = recipe.discriminators
    if stage is None:
        return
    flips = {"plan": stage.plan.flip, "generator": getattr(stage.generator, "flip", False)}
    for name, asked in flips.items():
        if asked:
            why = "mirrors images [C, H, W]; this task has other inputs, so set it to false"
            raise RecipeError(f"discriminators.{name}.flip", why)


def check_with_networks(recipe: Recipe, shares_head: Mapping[str, bool]) -> None:
    """Refuse networks without the head that Fed-ET shares.

    Args:
        recipe: the composition.
        shares_head: name of each prototype, and of the server's model, -> whether it ends in that head.

    Raises:
        RecipeError: names the network and the remedy.
    """
    if recipe.distil is None or not recipe.distil.students.shares_head:
        return
    without = [name for name, shares in shares_head.items() if not shares]
    if without:
        raise RecipeError(
            "distil.students",
            f"'server' shares its head with every prototype; give {without[0]!r} the option common_head, or a network "
            "whose features are named and whose tensors `head.*` alone make the output of them",
        )


def check_with_rounds(recipe: Recipe, min_updates: int) -> None:
    """Refuse a rule that needs more updates than a round may close with.

    Raises:
        RecipeError: names the part and the remedy.
    """
    needed = recipe.fuse.least_updates
    if min_updates < needed:
        what = f"{recipe.fuse.kind} needs {needed} updates of every model"
        raise RecipeError("fuse", f"{what}; set rounds.min_updates to that")


def check_with_secure(recipe: Recipe, local: LocalPlan, groups_of: int | None, min_group: int) -> None:
    """Refuse what reads a single client's update, which a secure round hides.

    Args:
        recipe: the composition.
        local: what clients run.
        groups_of: how many clients a group has at least when all are there; None where that is not known.
        min_group: how many a sum is over at least.

    Raises:
        RecipeError: names the part and the remedy.
    """
    without, distil = "or leave out rounds.secure", recipe.distil
    if recipe.fuse.sums is None:
        kinds = sorted(choice.model_fields["kind"].default for choice in choices_of(parts.FuseChoice) if choice.sums)
        what = f"{recipe.fuse.kind!r} reads single updates, and a secure round shows their sum alone"
        raise RecipeError("fuse", f"{what}; take {', '.join(kinds)}, {without}")
    if recipe.drop_worst is not None:
        what = "it judges single updates, which a secure round hides"
        raise RecipeError("drop_worst", f"{what}; leave it out, {without}")
    if recipe.discriminators is not None:
        raise RecipeError("discriminators", f"every device would send one unmasked; leave them out, {without}")
    if distil is not None and not distil.members.are_groups:
        what = "teachers are single clients' models, which a secure round hides"
        raise RecipeError("distil.members", f"{what}; take 'groups' with groups 'random' (FedSDD), {without}")
    if local.objective.sends:
        what = f"{local.objective.kind!r} sends more than the model's tensors, and that unmasked"
        raise RecipeError("local.objective", f"{what}; take sgd or fedprox, {without}")
    if local.precision is not None:
        raise RecipeError("local.precision", f"bits have no sum; leave it out, {without}")
    if groups_of is not None and groups_of < min_group:
        what = f"a group has {groups_of} of the clients that a round asks, and secure.min_group is {min_group}"
        raise RecipeError("groups", f"{what}; set rounds.clients_per_round higher or groups.count lower")


def check_with_buffered(recipe: Recipe, local: LocalPlan, per_client: int) -> None:
    """Refuse what has no meaning where updates of a round began from models of several ages.

    Args:
        recipe: the composition.
        local: what clients run.
        per_client: how many of a round's updates may be one device's.

    Raises:
        RecipeError: names the part and the remedy.
    """
    for choice in walk([recipe, local]):
        if choice.one_base is not None:
            what = f"{choice.kind!r} has no meaning where updates began from several models: {choice.one_base.why}"
            remedy = f"take {choice.one_base.instead}, or rounds.mode 'synchronous'"
            raise RecipeError(choice.slot, f"{what}; {remedy}")
    if recipe.counts_absent and per_client > 1:
        what = "a client counts once, whether it is there or absent"
        raise RecipeError("distil.members", f"{what}; set rounds.per_client to 1, or take members 'clients'")


def _check_sets(recipe: Recipe, has_validation: bool, has_unlabeled: bool) -> None:
    if recipe.needs_unlabeled and not has_unlabeled:
        raise RecipeError("distil.data", "the recipe reads an unlabelled server set; name datasets.unlabeled")
    if has_validation:
        return
    if recipe.drop_worst is not None:
        raise RecipeError("drop_worst", "needs a validation set to tell who is no better than chance; name one")
    if recipe.distil is not None and recipe.distil.schedule.early_stop is not None:
        raise RecipeError("distil.schedule.early_stop", "needs a validation set: name datasets.validation")
