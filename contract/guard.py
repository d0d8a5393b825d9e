"""Code of other packages while it runs: an error of it, and what it returned and may not, is told as theirs.

Potstill's own choices run as if nothing stood around them.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from contract.choices import Choice, kind_of
from contract.json_text import shown
from contract.packages import PluginFault

_OURS = frozenset({"contract", "worker", "client_sdk", "service", "potstill"})
_REMEDY = "mend or uninstall the package, or take another choice"
_LONGEST = 500


@contextmanager
def theirs(choice: Choice) -> Iterator[None]:
    """Run what carries out a choice; what the code of a package raises is told as its own.

    Errors of potstill's own classes go through: a client's file that is damaged is no fault of the rule that reads it.

    Raises:
        PluginFault: from what it raised.
    """
    if type(choice).is_own():
        yield
        return
    try:
        yield
    except Exception as error:  # code of others: whatever it raises, the package is told
        if type(error).__module__.partition(".")[0] in _OURS:
            raise
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise fault(choice, f"raised {shown(said)[:_LONGEST]}") from error


def fault(choice: Choice, what: str) -> PluginFault:
    """Return the error that says what the code of a choice's package did."""
    cls = type(choice)
    owner = cls.packaged or cls.__module__.partition(".")[0]
    return PluginFault(f"{choice.slot} {kind_of(cls)!r} of {owner} {what}; {_REMEDY}")
