"""A recipe or a plan is put among the rest of its federation: what it becomes there, and the notes that say so."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from contract.choices import Options
from contract.notes import KEEP, Note, Remark, Setting

Whole = TypeVar("Whole", bound=Options)


def settle(whole: Whole, setting: Setting, root: str, more: Iterable[Remark] = ()) -> tuple[Whole, list[Note]]:
    """Return what a whole becomes in its setting, and what there is to note, in the order of its parts.

    Args:
        whole: a recipe or a plan.
        setting: what else there is.
        root: the path of the whole in the request, such as `recipe`.
        more: what others say of the whole: of a recipe, its preset.

    Raises:
        ValidationError: what it would become is impossible.
    """
    said = [*(("", remark) for remark in more), *_remarks(whole, "", setting)]
    tree, notes = whole.model_dump(mode="json"), list[Note]()
    for where, remark in said:
        inner = ".".join(filter(None, (where, remark.option)))
        path = ".".join(filter(None, (root, inner)))
        if remark.becomes is not KEEP:
            if setting.was_asked(path):
                continue
            _put(tree, inner.split("."), remark.becomes)
        notes.append(Note(path=path, note=remark.note, why=remark.why))
    return type(whole).model_validate(tree, strict=False), notes  # checked as it came; lists stand for tuples here


def _remarks(value: Any, where: str, setting: Setting) -> Iterator[tuple[str, Remark]]:
    if isinstance(value, tuple | list):
        for number, each in enumerate(value):
            yield from _remarks(each, f"{where}.{number}", setting)
    elif isinstance(value, Options):
        for remark in value.remarks(setting):
            yield where, remark
        for name in type(value).model_fields:
            yield from _remarks(getattr(value, name), f"{where}.{name}" if where else name, setting)


def _put(tree: Any, path: list[str], value: Any) -> None:
    for key in path[:-1]:
        tree = tree[int(key)] if isinstance(tree, list) else tree[key]
    tree[path[-1]] = value.model_dump(mode="json") if isinstance(value, Options) else value
