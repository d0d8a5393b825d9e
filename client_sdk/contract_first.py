"""Import our `contract` before anything else does: beside a user's script there may be a file of that name."""

import importlib
import sys
from importlib.machinery import PathFinder
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_OURS = _ROOT / "contract" / "__init__.py"


def load() -> None:
    """Import our `contract`, whatever the path would give for that name.

    Raises:
        ImportError: the script has imported its own before; there can be only one.
    """
    loaded = sys.modules.get("contract")
    if loaded is not None:
        file = getattr(loaded, "__file__", None)
        if not _is_ours(file):
            raise ImportError(
                f"{file or 'something else'} was imported as 'contract'; client_sdk brings a package of that name, and "
                "there can be only one: give that file another name"
            )
        return
    found = PathFinder.find_spec("contract")
    if found is None or _is_ours(found.origin):
        return
    sys.path.insert(0, str(_ROOT))
    try:
        importlib.import_module("contract")
    finally:
        sys.path.remove(str(_ROOT))


def _is_ours(file: str | None) -> bool:
    return file is not None and Path(file).resolve() == _OURS


load()
