"""What does not go together in a federation: the recipe, what devices train, networks, data and rounds."""

from collections.abc import Set

from pydantic import ValidationError

from contract import architectures
from contract.ensembles import why_none
from contract.faults import faults_of
from contract.federation import SERVER, FederationConfig
from contract.local import DiscriminatorPlan, Link, LocalPlan
from contract.recipes.checks import (
    check_with_buffered,
    check_with_data,
    check_with_local,
    check_with_networks,
    check_with_rounds,
    check_with_secure,
    check_with_task,
)
from contract.recipes.errors import RecipeError
from contract.recipes.parts import GeneratorFederated, GeneratorTrained, GroupsRandom
from contract.recipes.recipe import Recipe, discriminator_link
from contract.tasks import TASKS
from contract.wire.federations import Prototype, Task
from contract.wire.plans import RoundsPlan
from contract.wire.retention import Retention
from service.domain.errors import DomainError, invalid_field
from service.domain.parting import check_parts

_NO_TOKENS = "a generator makes float32 inputs; this recipe cannot take token ids"


def check_mixture(config: FederationConfig, sets: Set[str]) -> None:
    """Refuse a federation that could not do what it says, before any device meets it.

    Args:
        config: as it is resolved; its datasets are not read.
        sets: the server sets that are there, of `unlabeled`, `validation` and `test`.

    Raises:
        DomainError: invalid-field, naming the field and the remedy.
    """
    recipe, task, rounds = config.recipe, config.task, config.rounds
    _check_recipe(config, sets)
    _check_groups(recipe, rounds)
    _check_server_model(config.server_model, config.prototypes, task)
    _check_gate(rounds, sets)
    _check_metric(rounds, task)
    _check_metrics(rounds, task, sets)
    _check_secure(config)
    _check_ensemble(config)
    _check_distance(config)
    check_architectures(config.prototypes, recipe, task, evaluates="test" in sets or rounds.runs_gate)
    check_privacy(config.prototypes, config.local)
    check_private_stage(recipe, config.local)
    _check_plans(config)
    _check_fusable(config)
    check_parts(config, sets)
    _check_generated(config)


def _check_metrics(rounds: RoundsPlan, task: Task, sets: Set[str]) -> None:
    """Refuse metrics of other tasks, those that devices cannot measure, and any without a set to measure on."""
    if rounds.metrics and "test" not in sets:
        raise invalid_field("rounds.metrics", "are measured on datasets.test; name one, or leave them out")
    on_devices = () if rounds.evaluate is None else rounds.evaluate.metrics
    fields = (("rounds.metrics", rounds.metrics), ("rounds.evaluate.metrics", on_devices))
    for field, number, metric in ((field, *each) for field, metrics in fields for each in enumerate(metrics)):
        if task.kind not in metric.kinds:
            kinds = ", ".join(sorted(metric.kinds)) or "no tasks"
            raise invalid_field(f"{field}.{number}", f"{metric.kind!r} measures {kinds}; leave it out")
    own = {"loss", *(each.name for each in TASKS[task.kind].metrics)}
    for number, metric in enumerate(on_devices):
        place, declares = f"rounds.evaluate.metrics.{number}", metric.declares
        if metric.kind in own:
            raise invalid_field(place, f"{metric.kind!r} is a figure of the task itself; leave it out")
        if declares.worker and not declares.device:
            what = f"{metric.kind!r} of {metric.package} says of no module what devices do; they cannot measure it"
            raise invalid_field(place, f"{what}: leave it out, or take it in rounds.metrics")


def _check_distance(config: FederationConfig) -> None:
    """Refuse a limit of distances, and figures of the model that is sent, where there is no such model."""
    objective, why = config.local.objective, None
    if not objective.sends_weights:
        why = "send no weights"
    elif not objective.starts_at_model:
        why = "may begin with networks of their own"
    if config.rounds.evaluate is not None and why is not None:
        raise invalid_field("rounds.evaluate", f"devices of this recipe {why}: no model is sent to be measured")
    if config.rounds.max_distance is not None and why is not None:
        raise invalid_field("rounds.max_distance", f"devices of this recipe {why}; leave it out")


def _check_plans(config: FederationConfig) -> None:
    """Refuse what a prototype's clients do otherwise where it does not go with the rest of the plan."""
    for number, prototype in enumerate(config.prototypes):
        try:
            config.plan_of(prototype.name)
        except ValidationError as error:
            field, said = faults_of(error)[0]
            raise invalid_field(f"prototypes.{number}.local.{field}".rstrip("."), said) from None


def _check_fusable(config: FederationConfig) -> None:
    """Refuse networks and numbers of classes that the recipe's rule cannot fuse."""
    try:
        config.recipe.fuse.check_classes(config.task.num_classes)
    except ValueError as error:
        raise invalid_field("recipe.fuse", str(error)) from None
    for number, prototype in enumerate(config.prototypes):
        shape, classes = config.task.input.shape, config.task.num_classes
        try:
            config.recipe.fuse.check_network(prototype.architecture, prototype.options, shape, classes)
        except ValueError as error:
            raise invalid_field(f"prototypes.{number}.architecture", str(error)) from None


def _check_recipe(config: FederationConfig, sets: Set[str]) -> None:
    recipe, read = config.recipe, config.task.input
    networks = [*config.prototypes, *([config.server_model] if config.server_model else [])]
    try:
        check_with_task(recipe, config.local, config.task.kind)
        check_with_local(recipe, config.local)
        check_with_data(
            recipe,
            has_validation="validation" in sets,
            has_unlabeled="unlabeled" in sets,
            has_server_model=config.server_model is not None,
            is_image=read.is_image,
            is_tokens=read.is_tokens,
        )
        check_with_networks(recipe, {network.name: _shares_head(network) for network in networks})
        check_with_rounds(recipe, config.rounds.min_updates)
        if config.rounds.buffering is not None:
            check_with_buffered(recipe, config.local, config.rounds.buffering.per_client)
    except RecipeError as error:
        field = error.field if error.field.startswith("local") else f"recipe.{error.field}"
        raise invalid_field(field, str(error)) from None


def _shares_head(network: Prototype) -> bool:
    """Whether a network ends in the head that Fed-ET shares; one that there is not is refused as such."""
    try:
        return architectures.find(network.architecture).shares_head(network.options)
    except ValueError:
        return True


def _check_groups(recipe: Recipe, rounds: RoundsPlan) -> None:
    """Refuse more groups than clients that are asked in a round."""
    asked = rounds.clients_per_round
    if isinstance(recipe.groups, GroupsRandom) and asked is not None and 1 <= asked < recipe.groups.count:
        raise invalid_field(
            "recipe.groups.count", f"{recipe.groups.count} groups, but rounds.clients_per_round is {int(asked)}"
        )


def _check_secure(config: FederationConfig) -> None:
    """Refuse secure rounds of what reads single updates."""
    secure = config.rounds.secure
    if secure is None:
        return
    asked = config.rounds.most_asked if config.rounds.clients_per_round is not None else None
    share = None if asked is None else asked // (config.group_count * len(config.prototypes))
    try:
        check_with_secure(config.recipe, config.local, share, secure.min_group)
    except RecipeError as error:
        field = error.field if error.field.startswith("local") else f"recipe.{error.field}"
        raise invalid_field(field, str(error)) from None


def _check_ensemble(config: FederationConfig) -> None:
    """Refuse to keep ensembles of what is no model, or is not shown."""
    why = why_none(config.recipe, config.rounds.secure is not None) if config.rounds.keep_ensemble else None
    if why is not None:
        raise invalid_field("rounds.keep_ensemble", f"{why}; leave it out")


def _check_generated(config: FederationConfig) -> None:
    """Refuse a generator that devices could not train beside their models."""
    for role, architecture, options in config.local.objective.networks:
        if config.task.input.is_tokens:
            raise invalid_field("task.input.dtype", _NO_TOKENS)
        _check_options("local.objective.architecture", architecture, role, options, config.task)


def check_retention(rounds: RoundsPlan, plan: Retention | None) -> None:
    """Refuse to keep masked updates: nothing can be computed from them again."""
    if rounds.secure is not None and plan is not None and plan.updates != 0:
        raise invalid_field(
            "retention.updates", "masked updates cannot be replayed; set it to 0, or leave rounds.secure out"
        )


def _check_server_model(server: Prototype | None, prototypes: list[Prototype], task: Task) -> None:
    """Refuse a server model that the service cannot run, and a prototype that takes its name."""
    if server is not None:
        if any(prototype.name == SERVER for prototype in prototypes):
            raise invalid_field("prototypes", f"{SERVER!r} is the name of the server's model; take another one")
        _check_options("server_model.architecture", server.architecture, "classifier", server.options, task)
        if not architectures.is_server_side(server.architecture):
            raise invalid_field("server_model.architecture", f"the service cannot run {server.architecture!r}")


def _check_gate(rounds: RoundsPlan, sets: Set[str]) -> None:
    """Refuse a gate without the labelled set that it measures on."""
    gate = rounds.gate
    if gate is not None and gate.role is not None and gate.role not in sets:
        raise invalid_field("rounds.gate", f"{gate.metric} needs a labelled set: datasets.{gate.role}")


def _check_metric(rounds: RoundsPlan, task: Task) -> None:
    """Refuse bounds of an accuracy where the task has another main metric."""
    metric = task.main_metric
    if metric.name != "accuracy":
        if rounds.target_accuracy is not None:
            raise invalid_field("rounds.target_accuracy", f"the task is measured by {metric.name}; set target_metric")
        if rounds.gate is not None and rounds.gate.metric.endswith("_accuracy"):
            said = f"the task is measured by {metric.name}; take 'validation' or 'test', which mean that"
            raise invalid_field("rounds.gate.metric", said)
    if metric.is_share and rounds.gate is not None and rounds.gate.max_drop > 1:
        raise invalid_field("rounds.gate.max_drop", f"{metric.name} lies in [0, 1]; give a fraction")


def check_architectures(prototypes: list[Prototype], recipe: Recipe, task: Task, evaluates: bool) -> None:
    """Refuse architectures that are unknown, have impossible options, or cannot do what the recipe needs of them."""
    if len({prototype.name for prototype in prototypes}) != len(prototypes):
        raise invalid_field("prototypes", "every prototype needs a name of its own")
    for number, prototype in enumerate(prototypes):
        field = f"prototypes.{number}"
        _check_options(f"{field}.architecture", prototype.architecture, "classifier", prototype.options, task)
        if architectures.is_server_side(prototype.architecture):
            continue
        if prototype.initial_model is None:
            raise invalid_field(f"{field}.initial_model", f"{prototype.architecture!r} needs an imported model")
        if recipe.needs_networks or evaluates:
            raise invalid_field(
                f"{field}.architecture",
                f"the service cannot run {prototype.architecture!r}, which distillation, a test set and a gate need; "
                "choose a registered architecture (your own can be one: docs/architectures.md), or a recipe that only "
                "averages, no test set and no gate",
            )
    if recipe.discriminators:
        _check_discriminators(recipe, task)


def check_privacy(prototypes: list[Prototype], local: LocalPlan) -> None:
    """Refuse networks that devices cannot train with differential privacy; each would refuse the round by itself."""
    if local.privacy is None:
        return
    for number, prototype in enumerate(prototypes):
        try:
            architectures.find(prototype.architecture).check_private(prototype.options)
        except ValueError as error:
            raise invalid_field(f"prototypes.{number}.architecture", str(error)) from None


def check_private_stage(recipe: Recipe, local: LocalPlan) -> None:
    """Refuse discriminators and critics that devices cannot train with differential privacy."""
    stage = recipe.discriminators
    if local.privacy is None or stage is None:
        return
    field, trained = "recipe.discriminators", {}
    if recipe.reads_scores:
        trained[f"{field}.plan.architecture"] = (stage.plan.architecture, stage.plan.options)
    if isinstance(stage.generator, GeneratorFederated):
        critic = (stage.generator.critic_architecture, stage.generator.critic_options)
        trained[f"{field}.generator.critic_architecture"] = critic
    for name, (architecture, options) in trained.items():
        try:
            architectures.find(architecture).check_private(options)
        except ValueError as error:
            raise invalid_field(name, str(error)) from None


def _check_discriminators(recipe: Recipe, task: Task) -> None:
    assert recipe.discriminators is not None
    generator, plan = recipe.discriminators.generator, recipe.discriminators.plan
    field = "recipe.discriminators"
    if task.input.is_tokens:
        raise invalid_field("task.input.dtype", _NO_TOKENS)
    _check_options(f"{field}.generator.architecture", generator.architecture, "generator", generator.options, task)
    if isinstance(generator, GeneratorTrained):
        _check_critic(f"{field}.generator", generator, task)
    if not recipe.reads_scores:
        return
    try:
        _check_options(f"{field}.plan.architecture", plan.architecture, "discriminator", plan.options, task)
    except DomainError as error:
        remedy = "; for vectors take the recipe option discriminators.plan.architecture = disc-mlp"
        remedy = "" if len(task.input.shape) == 3 else remedy
        raise invalid_field(f"{field}.plan.architecture", error.detail.partition(": ")[2] + remedy) from None
    _check_outputs(plan, discriminator_link(recipe))


def _check_critic(field: str, generator: GeneratorTrained, task: Task) -> None:
    """Refuse what is no critic of WGAN-GP: it scores each sample by itself, without bounds."""
    name, options = generator.critic_architecture, generator.critic_options
    _check_options(f"{field}.critic_architecture", name, "discriminator", options, task)
    try:
        architectures.find(name).check_per_sample(options, "be WGAN-GP's critic, whose penalty is per sample")
    except ValueError as error:
        raise invalid_field(f"{field}.critic_architecture", str(error)) from None
    if architectures.output_of(name, options) != "score":
        raise invalid_field(
            f"{field}.critic_options",
            "WGAN-GP's critic gives scores without bounds, no probability; leave its option output at 'score'",
        )


def _check_outputs(plan: DiscriminatorPlan, link: Link) -> None:
    """Refuse a discriminator that ends in a probability where a raw score is read, and the other way round."""
    gives = architectures.output_of(plan.architecture, plan.options)
    field, wants_probability = "recipe.discriminators.plan.options", link == "prob"
    if wants_probability and gives == "score":
        raise invalid_field(
            field,
            f"link 'prob' reads probabilities and {plan.architecture!r} gives raw scores as it is set; set its option "
            "output to 'probability', or take link 'sigmoid'",
        )
    if not wants_probability and gives == "probability":
        raise invalid_field(
            field,
            f"{plan.architecture!r} gives probabilities and the recipe reads raw scores; leave its option output at "
            "'score', or take link 'prob'",
        )


def _check_options(
    field: str, architecture: str, role: architectures.Role, options: dict[str, object], task: Task
) -> None:
    try:
        entry = architectures.find(architecture, role)
        entry.check_options(options)
        entry.check_input(task.input.shape, task.input.read_as)
        if role == "classifier":
            entry.check_task(task.kind)
        entry.check_output([] if role == "discriminator" else list(task.output_shape))
    except architectures.OptionsError as error:
        place = f"{field.removesuffix('architecture')}options.{error.option}".rstrip(".")
        raise invalid_field(place, error.detail) from None
    except ValueError as error:
        raise invalid_field(field, str(error)) from None
