"""Choices of packages and of files that a test brings: forgotten, as by a process that has just begun."""

import importlib
import sys

from client_sdk.methods.base import implements as of_devices
from client_sdk.metrics import implements as of_figures
from contract import choices, plugins
from worker.registry import implements as of_workers


def forget_foreign() -> None:
    """Know our own choices only, and look for packages again when they are asked for."""
    importlib.invalidate_caches()
    choices.forget({choice for choice in choices.every() if not choice.is_own()})
    for table in (of_workers._table, of_devices._table, of_figures._table):
        for choice in [each for each in table if not each.is_own()]:
            del table[choice]
    plugins._found = plugins._Found()
    for module in [name for name in sys.modules if name.startswith(("acme", "_potstill_plugin_"))]:
        del sys.modules[module]
