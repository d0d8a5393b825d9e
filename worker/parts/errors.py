"""The one exception of the numerical parts."""

from contract.errors import RuleError


class PartError(RuleError):
    """A part of a recipe that refuses its input; codes as in `RuleError`."""
