"""Whether a new model is published: its accuracy beside that of the one that it would replace."""

from collections.abc import Mapping

from contract.wire.plans import Gate

CODE = "gate_rejected"
_ROUNDING = 1e-9


def rejected(gate: Gate, figures: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """Return the models that are not published, each judged alone, with the reason.

    Args:
        figures: name -> `before`, the current model's accuracy, and `after`, the new one's.
    """
    found = {}
    for name, figure in sorted(figures.items()):
        before, after = figure["before"], figure["after"]
        if after < before - gate.max_drop - _ROUNDING:
            what = gate.metric.replace("_", " ")
            found[name] = f"{what} of {name!r} fell from {before:.4f} to {after:.4f}, by more than {gate.max_drop:g}"
    return found
