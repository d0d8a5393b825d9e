"""Experiment D1: the methods that are compared on the digits, and the one setting that they share."""

from dataclasses import dataclass, field
from typing import Any

from contract.wire.federations import FederationCreate
from potstill.demo.data import CLASSES, SHAPE

ADAM = {"kind": "adam", "lr": 1e-3}
LOCAL = {"optimizer": ADAM, "epochs": 10, "batch_size": 32}
SCHEDULE = {
    "optimizer": ADAM, "batch_size": 64, "epochs": 10, "lr": "constant", "clip_norm": None, "early_stop": None
}  # fmt: skip
DISCRIMINATOR = {
    "architecture": "disc-cnn-digits",
    "optimizer": {"kind": "adam", "lr": 1e-3, "betas": [0.5, 0.999]},
    "epochs": 30,
    "batch_size": 32,
}
DEADLINE = 900  # seconds; far above what a round takes, since a round without all its devices is not comparable


def _distil(**weigh: Any) -> dict[str, Any]:
    return {"weigh": weigh, "schedule": SCHEDULE}


def _fedgo(link: str, generator_steps: int = 300) -> dict[str, Any]:
    discriminators = {
        "generator": {"architecture": "gen-mlp", "steps": generator_steps},
        "plan": DISCRIMINATOR,
        "deadline_seconds": DEADLINE,
    }
    return {**_distil(kind="odds", link=link), "discriminators": discriminators}


@dataclass(frozen=True)
class Method:
    """One line of the comparison: a built-in recipe and its options."""

    key: str
    label: str
    recipe: str
    options: dict[str, Any] = field(default_factory=dict)


_ROWS = (
    Method("fedavg", "FedAvg", "fedavg"),
    Method("feddf", "FedDF", "feddf", _distil(kind="uniform")),
    Method("fedgo-sigmoid", "FedGO plain odds", "fedgo-small", _fedgo("sigmoid")),
    Method("fedgo-double", "FedGO double sigmoid", "fedgo-small", _fedgo("double_sigmoid")),
    Method("variance", "variance weights (logits)", "feddf", _distil(kind="variance", space="logits")),
    Method("variance-probs", "variance weights (probabilities)", "feddf", _distil(kind="variance", space="probs")),
    Method("entropy", "entropy weights", "feddf", _distil(kind="entropy")),
    Method("samples", "n_k weights only", "feddf", _distil(kind="samples")),
    Method("untrained", "FedGO untrained generator", "fedgo-small", _fedgo("double_sigmoid", generator_steps=0)),
)
METHODS = {row.key: row for row in _ROWS}
DEMO = ("fedavg", "feddf", "fedgo-sigmoid", "fedgo-double")


@dataclass(frozen=True)
class Setting:
    """What the methods of a run share: the same split, initial weights and participation.

    Attributes:
        clients: number of devices; `asked` of them train in a round, and all must answer.
        suffix: of the names of data sets and federations, when a service sees several runs.
    """

    rounds: int
    seed: int
    clients: int = 10
    asked: int = 4
    suffix: str = ""


def request(method: Method, setting: Setting, *, unlabeled: str, test: str) -> FederationCreate:
    """Return the body that creates D1's federation; `unlabeled` and `test` are data sets of the service."""
    body = {
        "name": f"{method.key}{setting.suffix}",
        "task": {"num_classes": CLASSES, "input": {"shape": list(SHAPE)}},
        "prototypes": [{"architecture": "cnn-digits"}],
        "recipe": {"name": method.recipe, "options": method.options},
        "local": LOCAL,
        "rounds": {
            "total": setting.rounds,
            "clients_per_round": setting.asked,
            "min_updates": setting.asked,
            "min_clients": setting.clients,
            "deadline_seconds": DEADLINE,
        },
        "datasets": {"unlabeled": unlabeled, "test": test},
        "seed": setting.seed,
    }
    return FederationCreate.model_validate(body)
