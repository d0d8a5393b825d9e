"""Whether what a federation needs of other packages is on this machine, asked before its devices train."""

from collections.abc import Iterable

from contract import plugins
from contract.packages import PluginError
from worker.registry import implements
from worker.specs import PackagedChoice


def check_packages(needed: Iterable[PackagedChoice]) -> None:
    """Refuse a federation that this worker lacks a package for, or has in another version than the service.

    Raises:
        PluginError: names the package and what to do.
    """
    for each in needed:
        choice = plugins.find(each.slot, each.kind)
        if choice is None:
            raise PluginError(plugins.lacking(each.slot, each.kind, each.package))
        if choice.packaged != each.package:
            raise PluginError(
                f"{each.slot} {each.kind!r}: the service has {each.package}, this worker {choice.packaged}; install "
                "the same on both, and restart them"
            )
        if implements.find(choice) is None and choice.slot != "local.objective":
            where = choice.declares.worker or "its file"
            raise PluginError(
                f"{each.slot} {each.kind!r} of {each.package}: {where!r} has nothing below "
                f"@implements({choice.__name__}); tell its author"
            )
