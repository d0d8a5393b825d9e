"""Choices of other packages: weightings, fuse rules and objectives beside potstill's own, by the same mechanics.

An entry point of the group `potstill.choices` names a choice's class and is called `<slot>.<kind>`. Packages are asked
at the first look, not at import, because they import what they extend; a file of the operator's can stand for one
(`take_file`). What is stored or answered may name a choice that is not here: it is read as it is, listed, shown and let
go of, and `lacking` says what to install. What is asked for is refused.
"""

import functools
import hashlib
import importlib.abc
import importlib.metadata
import importlib.util
import json
import re
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Annotated, Any, Final, cast

from pydantic import ConfigDict, GetCoreSchemaHandler, PrivateAttr, ValidationError, ValidationInfo, create_model
from pydantic_core import CoreSchema, core_schema

from contract import choices, packages
from contract.bounds import STORED
from contract.choices import ONE_OF, Choice, kind_of
from contract.faults import faults_of
from contract.json_text import shown
from contract.packages import Package, PluginError

OPEN_SLOTS = ("fuse", "distil.weigh", "local.objective", "rounds.metrics")
"""Slots that other packages may have choices of."""
ELSEWHERE: Final = {"elsewhere": True}
"""Context of a validation: the service checks what is asked for, and may have packages that are not here."""
_KIND = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_LOCK = threading.RLock()


@dataclass
class _Found:
    """What was found: the choices that can be asked for, why others cannot, by their entry points' names, and files."""

    taken: set[type[Choice]] = field(default_factory=set)
    broken: dict[str, PluginError] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)
    looked: bool = False


_found = _Found()


# -------------------------------------------------------------------------------------------------------- what is there
def installed() -> list[type[Choice]]:
    """Return the choices of other packages that are here, by slot and kind."""
    _look()
    return sorted(_found.taken, key=lambda choice: (choice.slot, kind_of(choice)))


def broken() -> dict[str, PluginError]:
    """Return why choices cannot be taken in, by the names of their entry points."""
    _look()
    return dict(_found.broken)


def check() -> None:
    """Refuse packages that offer what cannot be taken in.

    Raises:
        PluginError: the first of them.
    """
    for error in broken().values():
        raise error


def _look() -> None:
    """Take in what packages offer, once a process; one that cannot be taken in is no hindrance to the others."""
    with _LOCK:
        if _found.looked:
            return
        _found.looked = True  # first: what is imported here may look, too
        known = _foreign()
        points = packages.offers(packages.CHOICES)
        names = [point.name for point in points]
        for point in points:
            try:
                if names.count(point.name) > 1:
                    both = " and ".join(packages.where(each) for each in points if each.name == point.name)
                    raise PluginError(f"{point.name!r} is offered twice: {both}; uninstall one of the packages")
                _take_point(point)
            except PluginError as error:
                _found.broken[point.name] = error
        choices.forget(_foreign() - known - _found.taken)


def _take_point(point: importlib.metadata.EntryPoint) -> None:
    with choices.tentatively():
        choice, whose = packages.load(point), packages.where(point)
        if not isinstance(choice, type) or not issubclass(choice, Choice):
            raise PluginError(f"{whose} must name a class below a slot's, such as FuseChoice, not {choice!r}")
        if point.name != f"{choice.slot}.{_word(choice)}":
            wanted = f"{choice.slot or 'slot'}.{_word(choice) or 'kind'}"
            raise PluginError(f"{whose}: rename the entry point {wanted!r}, which is what {choice.__name__} is")
        side = "device" if choice.slot == "local.objective" else "worker"
        if not getattr(choice.declares, side):
            raise PluginError(f"{whose}: {choice.__name__} needs declares = Declares({side}='package.module')")
        _take([choice], packages.package_of(point) or Package(point.value, "?"), whose)


def take_file(path: Path) -> list[type[Choice]]:
    """Take in the choices that a Python file of the operator's defines, as if a package with it were installed.

    The file is run. It holds the classes and their functions together; its version is the digest of what it says.

    Raises:
        PluginError: it cannot be read or run, or defines no choice of an open slot.
    """
    whose = f"the file {str(path)!r}"
    try:
        text = path.read_bytes()
    except OSError as error:
        raise PluginError(f"{whose} cannot be read: {error.strerror}") from error
    digest = hashlib.sha256(text).hexdigest()
    package, name = Package(path.name, f"sha256-{digest[:12]}"), f"_potstill_plugin_{digest}"
    with _LOCK:
        _look()
        if name not in sys.modules:
            try:
                with choices.tentatively():
                    _run(name, path, text, whose)
                    _take([choice for choice in _foreign() if choice.__module__ == name], package, whose)
                    _found.files[name] = path.absolute()
            except PluginError:
                sys.modules.pop(name, None)
                raise
        return [choice for choice in installed() if choice.__module__ == name]


def files() -> list[Path]:
    """Return the files that were taken in, for other processes that are to know the same choices."""
    return list(_found.files.values())


class _Text(importlib.abc.InspectLoader):
    """Runs what was read of a file, whose digest is told, and leaves nothing beside it."""

    def __init__(self, path: Path, text: bytes):
        self._path, self._text = path, text

    def get_source(self, fullname: str) -> str:
        """Return the file's text."""
        return self._text.decode()

    def get_code(self, fullname: str) -> CodeType:
        """Return what it says."""
        return self.source_to_code(self._text, str(self._path))


def _run(name: str, path: Path, text: bytes, whose: str) -> None:
    spec = importlib.util.spec_from_loader(name, _Text(path, text), origin=str(path))
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # code of others
        raise PluginError(f"{whose} cannot be loaded: {str(error) or type(error).__name__}; mend it") from error


def _foreign() -> set[type[Choice]]:
    return {choice for choice in choices.every() if not choice.is_own()}


def _word(choice: type[Choice]) -> str:
    kind = choice.model_fields["kind"].default
    return kind if isinstance(kind, str) else ""


def _take(found: list[type[Choice]], package: Package, whose: str) -> None:
    """Make choices ones that can be asked for.

    Raises:
        PluginError: there is none, or one cannot be taken in; then none is.
    """
    if not found:
        raise PluginError(f"{whose} defines no choice; define a class below that of {', '.join(OPEN_SLOTS)}")
    for choice in found:
        _check(choice, whose)
    for choice in found:
        choice.packaged = str(package)
    _found.taken.update(found)


def _check(choice: type[Choice], whose: str) -> None:
    name, kind = choice.__name__, _word(choice)
    if choice.slot not in OPEN_SLOTS:
        raise PluginError(f"{whose}: {name} is of slot {choice.slot!r}; packages may add to {', '.join(OPEN_SLOTS)}")
    if not _KIND.fullmatch(kind):
        raise PluginError(f"{whose}: {name} has the kind {kind!r}; use lower-case letters, digits and _ - (at most 64)")
    if "package" in choice.model_fields:
        raise PluginError(f"{whose}: {name} has an option 'package', which says whose a choice is; rename it")
    adds = any("adds" in vars(base) for base in choice.__mro__ if getattr(base, "is_own", lambda: True)() is False)
    if adds and not choice.declares.sends and "sends" not in vars(choice):
        raise PluginError(f"{whose}: {name} adds tensors to updates and does not say so; declare sends")
    if choice.is_own():
        raise PluginError(f"{whose}: {name} is potstill's own; derive a class from it, with a kind of its own")
    try:
        json.dumps(choice.model_json_schema(), allow_nan=False)
    except Exception as error:  # code of others
        said = str(error).partition("\n")[0] or type(error).__name__
        why = f"{name} has options that JSON Schema cannot describe: {said}"
        raise PluginError(f"{whose}: {why}; give them types of JSON, and defaults that are finite") from error


def find(slot: str, kind: str) -> type[Choice] | None:
    """Return a package's choice; None where no package that is here has it."""
    _look()
    choice = choices.find(slot, kind)
    return choice if choice in _found.taken else None


# ------------------------------------------------------------------------------------------------------ what is missing
class Missing(Choice):
    """A choice of a package that is not here, as it was stored or answered: nothing is known of it but what it says."""

    model_config = ConfigDict(extra="allow")

    @classmethod
    def is_own(cls) -> bool:
        """It is nobody's that is here."""
        return False

    _unfit: str = PrivateAttr("")
    """Why the options are none of the version that is here."""

    @property
    def lacking(self) -> str:
        """What to install."""
        return lacking(self.slot, self.kind, self.package, self._unfit)


def lacking(slot: str, kind: str, package: str, unfit: str = "") -> str:
    """Return why a choice of a package, name and version, cannot be carried out here, and what to do.

    Args:
        unfit: why its options are none of the version that is here.
    """
    what = f"{slot} {shown(kind)!r} is of the package {shown(package) or '(unknown)'}"
    why = broken().get(f"{slot}.{kind}")
    if why is not None:
        return f"{what}, and cannot be used here: {why}"
    name, _, version = shown(package).partition(" ")
    remedy = f"pip install '{name}=={version}'" if version else "install it"
    return f"{what}, {unfit or 'which is not installed here'}; {remedy}, and start again"


@functools.cache
def _missing(slot: type[Choice]) -> type[Missing]:
    """Return the class of what is missing in a slot; it answers whatever a slot's choices are asked, as by default."""
    bases: Any = (slot, Missing)
    return cast(type[Missing], create_model(f"Missing{slot.__name__}", __base__=bases))


# ------------------------------------------------------------------------------------------------------ how it is read
class _Open:
    """Makes a field of a slot's class one of its choices, as `ONE_OF` does, those of packages included.

    Attributes:
        classes: the classes that fields were made of.
    """

    def __init__(self) -> None:
        self.classes: set[type[Choice]] = set()

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        self.classes.add(source)
        own: CoreSchema = handler.generate_schema(Annotated[source, ONE_OF])
        return core_schema.with_info_wrap_validator_function(
            functools.partial(_read, source),
            own,
            serialization=core_schema.wrap_serializer_function_ser_schema(_write, info_arg=True, schema=own),
        )


OPEN = _Open()
"""``Annotated[FuseChoice, OPEN]``: one of the choices of a slot, or one that a package adds to it."""


def _read(slot: type[Choice], value: Any, handler: Any, info: ValidationInfo) -> Any:
    if isinstance(value, slot) and not type(value).is_own():
        return value
    kind = value.get("kind") if isinstance(value, Mapping) else None
    known = choices.find(slot.slot, kind) if isinstance(kind, str) else None
    if not isinstance(kind, str) or (known is not None and known.is_own()):
        return handler(value)
    made = find(slot.slot, kind)
    rest = {name: each for name, each in value.items() if name != "package"}
    if made is not None and issubclass(made, slot):
        return _made(slot, made, rest, value.get("package"), info)
    if info.context is STORED or info.context is ELSEWHERE:
        return _noted(_missing(slot).model_validate(rest), value.get("package"))
    why = _found.broken.get(f"{slot.slot}.{kind}")
    if why is not None:
        raise ValueError(f"kind: {shown(kind)!r} cannot be used here: {why}")
    return handler(value)


def _made(
    slot: type[Choice], choice: type[Choice], options: dict[str, Any], package: Any, info: ValidationInfo
) -> Choice:
    """Return a choice of a package, and note of which.

    What was stored by another version, and has options that this one does not take, is as missing as its package.

    Raises:
        ValueError: an option, or the package of another version is asked for.
    """
    stored = info.context is STORED
    if package not in (None, choice.packaged) and not stored:
        raise ValueError(f"package: {choice.packaged} is installed here; leave it out, or install what you name")
    strict = False if stored else None
    try:
        made = choice.__pydantic_validator__.validate_python(options, strict=strict, context=info.context)
    except ValidationError as error:
        if not stored:
            raise
        unread, (field, message) = _missing(slot).model_validate(options), faults_of(error)[0]
        here = f"and {choice.packaged}, which is installed here"
        unread._unfit = f"{here}, does not take its {field or 'options'}: {message}"
        return _noted(unread, package)
    return _noted(made, package or choice.packaged)


def _noted(choice: Choice, package: Any) -> Choice:
    choice._package = package if isinstance(package, str) else None
    return choice


def _write(value: Any, handler: Any, info: Any) -> Any:
    if not isinstance(value, Choice) or type(value).is_own():
        return handler(value)
    told = value.model_dump(mode=info.mode)
    return told | {"package": value.package} if value.package else told
