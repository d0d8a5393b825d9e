"""Networks of which devices train a part: what of that goes with the rest of a federation, and what does not."""

from collections.abc import Callable, Iterator, Set

from contract import architectures
from contract.federation import FederationConfig
from contract.networks.document import PREFIX
from contract.partition import PatternError, matches, partition
from contract.tensors import Header
from contract.wire.federations import Prototype
from service.domain.errors import invalid_field

_SHARED_HEAD = ("head.0.weight", "head.0.bias", "head.2.weight", "head.2.bias")
_HEAD = "head.*"


def check_parts(config: FederationConfig, sets: Set[str]) -> None:
    """Refuse parted networks where the rest of a federation needs them whole.

    Args:
        config: as it is resolved.
        sets: the server sets that are there.

    Raises:
        DomainError: invalid-field, naming the field and the remedy.
    """
    if config.server_model is not None and config.server_model.parted:
        raise invalid_field("server_model", "the server trains its model whole; leave out trains, keeps and lora")
    for number, prototype in enumerate(config.prototypes):
        field = f"prototypes.{number}"
        if prototype.lora == "a_frozen" and prototype.trains is None:
            detail = "'a_frozen' freezes a factor of the adapters that `trains` names; name them, or leave it out"
            raise invalid_field(f"{field}.lora", detail)
        if not prototype.parted:
            continue
        named = "trains" if prototype.trains is not None else "keeps"
        if not config.recipe.fuse.takes_parts:
            detail = f"{config.recipe.fuse.kind!r} matches all layers of a network; take a mean, or leave it out"
            raise invalid_field(f"{field}.{named}", detail)
        _check_head(config, prototype, field)
    if any(prototype.keeps for prototype in config.prototypes):
        _check_kept(config, sets)


def _check_head(config: FederationConfig, prototype: Prototype, field: str) -> None:
    """Refuse a head that Fed-ET shares and devices would not train."""
    distil = config.recipe.distil
    if distil is None or not distil.students.shares_head or prototype.trains is None:
        return
    if not all(any(matches(name, pattern) for pattern in prototype.trains) for name in _SHARED_HEAD):
        raise invalid_field(f"{field}.trains", f"the recipe averages the common head; add {_HEAD!r}")


def _check_kept(config: FederationConfig, sets: Set[str]) -> None:
    """Refuse what would run a network whose kept tensors the service has first values of, and no others."""
    why = "the service never sees what devices keep to themselves (prototypes[].keeps)"
    for field, remedy in _runs(config, sets):
        raise invalid_field(field, f"{why}, so its networks predict nothing; {remedy}")


def _runs(config: FederationConfig, sets: Set[str]) -> Iterator[tuple[str, str]]:
    recipe = config.recipe
    averaging = "take a recipe that only averages, such as fedavg, or leave keeps out"
    if recipe.distil is not None:
        yield "recipe.distil", averaging
    if recipe.needs_networks:
        yield "recipe", averaging
    if config.rounds.gate is not None:
        yield "rounds.gate", "leave one of them out"
    if "test" in sets:
        yield "datasets.test", "leave it out: devices measure their own models, whose accuracy rounds show"
    if config.rounds.keep_ensemble:
        yield "rounds.keep_ensemble", "leave it out"


def check_imported(config: FederationConfig, header_of: Callable[[str], Header]) -> None:
    """Refuse patterns that part no network, as far as the tensors' names are known before it is built.

    Args:
        config: the federation's.
        header_of: id of an imported model -> its file's header.

    Raises:
        DomainError: invalid-field, naming the pattern.
    """
    for number, prototype in enumerate(config.prototypes):
        if not prototype.parted or prototype.initial_model is None:
            continue
        name = prototype.architecture
        if not name.startswith(PREFIX) and architectures.is_server_side(name):
            continue  # an imported file of the catalogue's networks may lack what devices train
        try:
            partition(prototype.parts, header_of(prototype.initial_model))
        except PatternError as error:
            raise invalid_field(f"prototypes.{number}.{error.field}", error.detail) from None


def check_predicts(config: FederationConfig) -> None:
    """Refuse to predict with models of which devices keep a part to themselves.

    Raises:
        DomainError: invalid-field.
    """
    if any(prototype.keeps for prototype in config.prototypes):
        raise invalid_field("prototype", "devices keep a part of their models to themselves; predict on a device")
