"""Choices: every option of a recipe or a local plan is one class that says all there is to know of it.

A *slot* is a place that a choice goes to, such as `fuse` or `distil.weigh`: a class below `Choice` with a name. A
choice is a class below a slot's with a literal `kind`, what it `declares`, and its options. It registers itself by
being defined: unions, schemas and tables are made from `choices_of`, and whoever carries choices out has an
`Implementations`, from class to function. Choices of other packages are found by `contract.plugins`.
"""

import functools
import importlib
import inspect
import operator
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, PrivateAttr
from pydantic_core import CoreSchema

from contract.bodies import Part
from contract.limits import OneBase as OneBase
from contract.limits import Only as Only
from contract.limits import Partner as Partner
from contract.notes import Remark, Setting
from contract.packages import PluginError
from contract.updates import SEND

Need = Literal["label_counts", "scores", "unlabeled", "generator", "features", "networks"]
"""What a choice cannot do without; `NEEDS` says it in words."""

NEEDS: dict[Need, str] = {
    "unlabeled": "unlabelled data on the server",
    "scores": "a discriminator of every client",
    "generator": "a generator",
    "label_counts": "clients that share their label counts",
    "features": "a network with named features",
    "networks": "a worker that runs networks",
}

Follows = Literal["steps", "model", "round", "devices"]
"""Whom a carried file follows when models change otherwise than by a published round.

`steps`: its model, and it begins anew when another model is put in that one's place: steps on a path that was left.
`model`: its model: one that was turned away leaves no trace.
`round`: the round that made it, whichever of the models changed.
`devices`: nobody. The other half is on the devices, which no operator can turn back.
"""


@dataclass(frozen=True)
class Carried:
    """What a choice carries from round to round: one file, one for each model, or one for each model and round.

    Attributes:
        name: its name among what a federation keeps; the model's and the round's follow, each after a dot.
        follows: what a rollback, a promotion and a gate do with it.
        sent: devices are sent it beside the model.
        each_round: it is kept by round, too.
        tells_of: whose data it tells of beside those of models: `client`, whose name takes the model's place, or `all`
            clients. It goes when that client, or any, is deleted.
    """

    name: str
    follows: Follows
    sent: bool = False
    each_round: bool = False
    tells_of: Literal["client", "all"] | None = None

    @property
    def stem(self) -> str:
        """How all of its names begin."""
        return SEND + self.name if self.sent else self.name

    def named(self, model: str | None = None, round_index: int | None = None) -> str:
        """Return the name under which a file is kept."""
        return ".".join(str(each) for each in (self.stem, model, round_index) if each is not None)


Occasion = Literal["enrolment", "before", "generator", "round"]
"""When something is sent: once at enrolment, once before the first round, each round of the generator, each round."""


@dataclass(frozen=True)
class Sent:
    """What a choice has devices send of their data, beside the model's weights or instead of them.

    Attributes:
        what: in words.
        exposed: with `local.privacy` it would leave without noise: what to take instead. Empty where noise reaches it
            and its cost is counted, or where it is made of nothing but weights that noise has reached.
        noised: how noise reaches it with `local.privacy`; empty where none does.
        when: how often it is sent.
    """

    what: str
    exposed: str = ""
    noised: str = ""
    when: Occasion = "round"


@dataclass(frozen=True)
class Declares:
    """What a choice says of itself beside its options.

    Attributes:
        source: the paper, with the place in it.
        needs: what it cannot do without.
        carries: what the worker keeps for the next round.
        reads: what devices read beside the model, by the names of `contract.updates`.
        partner: of a fuse rule the clients' objective that it goes with, and the other way round.
        sends: what devices send for it of their data; a test asks it of all that read more than weights.
        worker: of another package's choice the module with what workers do for it, below `@implements`.
        device: the module with what devices do.
        only: the kinds of task that it has a meaning for; None: all of them.
        one_base: why it has none in rounds that do not wait; None: it has.
    """

    source: str = ""
    needs: frozenset[Need] = frozenset()
    carries: tuple[Carried, ...] = ()
    reads: tuple[str, ...] = ()
    partner: Partner | None = None
    sends: tuple[Sent, ...] = ()
    worker: str = ""
    device: str = ""
    only: Only | None = None
    one_base: OneBase | None = None


class Options(Part):
    """Base of what a recipe or a plan is made of: unknown options are refused, values never change."""

    model_config = ConfigDict(ignored_types=(Declares,))

    def remarks(self, setting: Setting) -> Iterable[Remark]:
        """Say what is left out, taken by default or changed of these options in a federation like that."""
        return ()


class Choice(Options):
    """Base of the slots."""

    slot: ClassVar[str] = ""
    declares: ClassVar[Declares] = Declares()
    packaged: ClassVar[str] = ""
    """Whose it is, name and version; empty of potstill's own. Set where the package is found."""

    kind: str
    _package: str | None = PrivateAttr(None)

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        kind = cls.model_fields["kind"].default
        if not isinstance(kind, str):
            return
        if not cls.slot:
            raise TypeError(f"{cls.__name__} is a choice of no slot; derive it from a slot's class")
        if _REGISTERED.setdefault((cls.slot, kind), cls) is not cls:
            raise TypeError(f"{cls.slot} has a choice {kind!r} already; take another word than {cls.__name__}")
        for each in cls.declares.carries:
            declare(each)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        made = handler.resolve_ref_schema(handler(schema))
        made["description"] = described(cls)
        return made

    @classmethod
    def is_own(cls) -> bool:
        """Whether it is potstill's own, not another package's."""
        return cls.__module__.partition(".")[0] == __name__.partition(".")[0]

    @property
    def package(self) -> str:
        """Whose it is: the package that it was chosen of, name and version; empty of potstill's own."""
        return self._package or self.packaged

    @property
    def lacking(self) -> str:
        """Why it cannot be carried out here, with the remedy; empty where it can."""
        return ""

    @property
    def needs(self) -> frozenset[Need]:
        """What this choice cannot do without, as its options are."""
        return self.declares.needs

    @property
    def sends(self) -> tuple[Sent, ...]:
        """What devices send for it of their data, as its options are."""
        return self.declares.sends

    @property
    def one_base(self) -> OneBase | None:
        """Why it has no meaning in rounds that do not wait, as its options are; None: it has."""
        return self.declares.one_base

    @property
    def only(self) -> Only | None:
        """The kinds of task that it has a meaning for, as its options are; None: all of them."""
        return self.declares.only


_REGISTERED: dict[tuple[str, str], type[Choice]] = {}
_CARRIED: dict[str, Carried] = {}


def declare(each: Carried) -> Carried:
    """Note what is carried from round to round, and return it.

    Raises:
        TypeError: the name is taken by what follows something else.
    """
    if _CARRIED.setdefault(each.stem, each) != each:
        raise TypeError(f"{each.stem!r} is carried otherwise already; take another name")
    return each


Slot = TypeVar("Slot", bound=Choice)
Made = TypeVar("Made")


@contextmanager
def tentatively() -> Iterator[None]:
    """Forget the choices of others that are defined within, where it ends in an error."""
    before = set(_REGISTERED.values())
    try:
        yield
    except BaseException:
        forget(choice for choice in every() if choice not in before and not choice.is_own())
        raise


def forget(choices: Iterable[type[Choice]]) -> None:
    """Let choices be none any more."""
    for choice in choices:
        del _REGISTERED[choice.slot, kind_of(choice)]
    kept = {each.stem: each for choice in every() for each in choice.declares.carries}
    _CARRIED.clear()
    _CARRIED.update(kept)


def every() -> list[type[Choice]]:
    """Return all choices, in the order of their definition."""
    return list(_REGISTERED.values())


def find(slot: str, kind: str) -> type[Choice] | None:
    """Return the choice of a slot that goes by a word; None where there is none."""
    return _REGISTERED.get((slot, kind))


def kind_of(choice: type[Choice]) -> str:
    """Return the word by which a choice goes on the wire."""
    return str(choice.model_fields["kind"].default)


def described(choice: type[Choice]) -> str:
    """Return what a choice is, with its source."""
    first, *rest = inspect.cleandoc(choice.__doc__ or "").split("\n\n")
    source = choice.declares.source
    return "\n\n".join([f"{first.removesuffix('.')} ({source})." if source else first, *rest])


def choices_of(slot: type[Slot]) -> list[type[Slot]]:
    """Return the choices below a slot's class, in the order of their definition."""
    return [each for each in _REGISTERED.values() if issubclass(each, slot)]


def slots() -> dict[str, list[type[Choice]]]:
    """Return all choices by slot."""
    found: dict[str, list[type[Choice]]] = {}
    for (slot, _), choice in _REGISTERED.items():
        found.setdefault(slot, []).append(choice)
    return found


def carried(name: str) -> tuple[Carried | None, str]:
    """Return what was declared of a kept file, None where no choice is known to keep it, and its model's name."""
    stem, _, rest = name.removeprefix(SEND).partition(".")
    found = _CARRIED.get(SEND + stem if name.startswith(SEND) else stem)
    return found, rest.rpartition(".")[0] if found is not None and found.each_round else rest


class _OneOf:
    """Makes a field of a slot's class the union of its choices, told apart by `kind`, when its model is built."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        found: list[Any] = [each for each in choices_of(source) if each.is_own()]
        union: Any = functools.reduce(operator.or_, found)
        return handler.generate_schema(Annotated[union, Field(discriminator="kind")] if len(found) > 1 else union)


ONE_OF = _OneOf()
"""``Annotated[FuseChoice, ONE_OF]``: one of the choices of a slot."""


def walk(value: Any) -> Iterator[Choice]:
    """Yield a model's choices: itself, where it is one, and those in its fields, however deep; in their order."""
    if isinstance(value, tuple | list):
        for each in value:
            yield from walk(each)
    elif isinstance(value, BaseModel):
        if isinstance(value, Choice):
            yield value
        for name in type(value).model_fields:
            yield from walk(getattr(value, name))


class Implementations(Generic[Made]):
    """Who carries choices out, by decoration: one function or class for each.

    ``implements = Implementations()``; ``@implements(FuseMedian)`` above a function; ``implements.of(choice)`` is it.
    """

    def __init__(self, side: Literal["worker", "device"] | None = None) -> None:
        self._table: dict[type[Choice], Made] = {}
        self._side = side

    def __call__(self, *choices: type[Choice]) -> Callable[[Made], Made]:
        """Return a decorator that notes who carries these choices out.

        Raises:
            TypeError: for one of them there is somebody already.
        """

        def note(made: Made) -> Made:
            for choice in choices:
                if self._table.setdefault(choice, made) is not made:
                    raise TypeError(f"{choice.__name__} is implemented twice")
            return made

        return note

    def of(self, choice: Choice) -> Made:
        """Return who carries a choice out.

        Raises:
            LookupError: nobody does.
            PluginError: as `get`.
        """
        found = self.get(choice)
        if found is None:
            name = type(choice).__name__
            detail = f"nobody carries out {name}: is @implements({name}) above its function, and its module imported?"
            raise LookupError(detail)
        return found

    def get(self, choice: Choice) -> Made | None:
        """Return who carries a choice out; None where there is nothing to do for it here.

        Raises:
            PluginError: it is of a package that is not here, or whose module cannot be imported.
        """
        if choice.lacking:
            raise PluginError(choice.lacking)
        return self.find(type(choice))

    def find(self, choice: type[Choice]) -> Made | None:
        """Return who carries out choices of a class; None where nobody does.

        Raises:
            PluginError: the module of its package cannot be imported.
        """
        if choice not in self._table:
            self._import(choice)
        return self._table.get(choice)

    def _import(self, choice: type[Choice]) -> None:
        """Import the module that a package's choice names for this side."""
        module = "" if self._side is None else getattr(choice.declares, self._side)
        if not module:
            return
        try:
            importlib.import_module(module)
        except Exception as error:  # code of others: whatever it raises, the package is told
            owner, said = choice.packaged or "its package", str(error) or type(error).__name__
            what = f"{choice.slot} {kind_of(choice)!r} of {owner}: the module {module!r}"
            raise PluginError(f"{what} cannot be loaded: {said}; mend or uninstall the package") from error

    def known(self) -> frozenset[type[Choice]]:
        """Return the choices that are carried out here."""
        return frozenset(self._table)
