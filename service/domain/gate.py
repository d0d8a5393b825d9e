"""Whether a new model is published: its accuracy, or other main metric, beside that of the one it would replace."""

from collections.abc import Mapping
from typing import Any, TypeVar

from contract.tasks import ACCURACY, Metric
from contract.wire.plans import Gate

CODE = "gate_rejected"
_ROUNDING = 1e-9
_Key = TypeVar("_Key", int, str)


def rejected(gate: Gate, figures: Mapping[str, Mapping[str, float]], metric: Metric = ACCURACY) -> dict[str, str]:
    """Return the models that are not published, each judged alone, with the reason.

    Args:
        gate: the plan's.
        figures: name -> `before`, the current model's main metric, and `after`, the new one's.
        metric: the task's main one.
    """
    found = {}
    for name, figure in sorted(figures.items()):
        before, after = figure["before"], figure["after"]
        if metric.loss_of(before, after) > gate.max_drop + _ROUNDING:
            what = gate.metric.replace("_", " ")
            what = what if what.endswith(metric.name) else f"{what} {metric.name}"
            went = "fell" if metric.higher_is_better else "rose"
            found[name] = f"{what} of {name!r} {went} from {before:.4f} to {after:.4f}, by more than {gate.max_drop:g}"
    return found


def judged(gate: Gate, measured: Mapping[str, Any], rejected: Mapping[str, str]) -> dict[str, Any]:
    """Return a round's figure `gate` with what was decided: the plan's terms, and of each model whether it passed."""
    models = {name: figure | {"passed": name not in rejected} for name, figure in measured["models"].items()}
    return {**measured, "max_drop": gate.max_drop, "action": gate.action, "models": models}


def reason(rejected: Mapping[str, str]) -> str:
    """Return why a round did not publish all of its models."""
    return f"{CODE}: {'; '.join(rejected.values())}"


def best(measured: Mapping[_Key, float], current: _Key, metric: Metric = ACCURACY) -> _Key | None:
    """Return the model that comes back in the place of `current`: the best that was ever measured, if it is better.

    Of several that are equally good the newest.

    Args:
        measured: main metric of all that were; keys rise in the order in which the models were made.
        current: the one that is there.
        metric: the task's main one.
    """
    found = max(measured, key=lambda key: (metric.goodness(measured[key]), key), default=None)
    if found is None or found == current:
        return None
    if current in measured and not metric.better(measured[found], measured[current]):
        return None
    return found
