"""Federations without HTTP and without a database: the worker's own pipeline and the SDK's own devices.

`run` compares recipes in a few lines of Python. `engine.Simulation` runs one recipe, `experiment` compares several on
the same data, `sweeps` are grids of such comparisons. Modules are imported one by one: they need torch, and the command
line starts without it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from potstill.simulate.sweeps.python import Results, run

__all__ = ["Results", "run"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from potstill.simulate.sweeps import python

    return getattr(python, name)
