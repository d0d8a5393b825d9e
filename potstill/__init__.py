"""Command line, supervisor and demo: where the parts are put together. Nothing imports this package."""

import sys
from importlib.machinery import PathFinder
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_SITE = ("site-packages", "dist-packages")


def _first() -> None:
    """Put our folder first where something else on the path, say a `service.py`, would be taken for one of ours."""
    for name in ("contract", "client_sdk", "service", "worker", "migrations"):
        found = PathFinder.find_spec(name)
        place = None if found is None or found.origin is None else Path(found.origin).resolve().parents[1]
        if found is None or place == _ROOT or (place is not None and place.name in _SITE):  # `cli` refuses a device's
            continue
        sys.path.insert(0, str(_ROOT))
        return


_first()
