"""Presets that are FedAvg on the server and something else on the device: FedGKD, MOON, FedUV, FedTGP."""

from collections.abc import Iterator

from contract.local import (
    Adam,
    FedGkdObjective,
    FedTgpObjective,
    FedUvObjective,
    LocalPlan,
    MoonObjective,
    Sgd,
)
from contract.notes import Remark, Setting
from contract.recipes.recipe import Recipe
from contract.recipes.rows.row import Preset

FEDGKD_LOCAL = LocalPlan(objective=FedGkdObjective(), optimizer=Adam(lr=1e-3), epochs=30, batch_size=64)
RING = "The mean of the last 5 published models, buffers too, goes to the devices; there is none in the first round."


def _projects(recipe: Recipe, setting: Setting) -> Iterator[Remark]:
    """The paper compares what a projection head makes of the features."""
    bare = sorted(name for name, projects in setting.projects.items() if not projects)
    if bare:
        why = f"{bare[0]!r} has none; give its architecture the option projection=256 for the paper's"
        yield Remark("", "features are compared without a projection head", why)


ROWS = (
    Preset(
        Recipe(name="fedgkd"),
        FEDGKD_LOCAL,
        "Yao et al. 2021 (FedGKD); FedGO App. E.2",
        "Clients also learn from the mean of the last global models.",
        (RING, "Optimiser and epochs are those of FedGO's comparison."),
    ),
    Preset(
        Recipe(name="moon"),
        LocalPlan(
            objective=MoonObjective(), optimizer=Sgd(lr=0.01, momentum=0.9, weight_decay=1e-5), epochs=10, batch_size=64
        ),
        "Li et al. 2021 (MOON)",
        "Clients keep their features near the global model's and away from their own previous one's.",
        (
            "mu 1; the paper took 5 for CIFAR-10.",
            "The previous local model stays on the device; in its first round a device has the global one instead.",
            "Features are those that the last layer reads; the paper's projection head is an option of the networks, "
            "projection=256.",
        ),
        _projects,
    ),
    Preset(
        Recipe(name="feduv"),
        LocalPlan(objective=FedUvObjective(), optimizer=Adam(lr=1e-3), epochs=30, batch_size=64),
        "Son et al. 2024 (FedUV)",
        "Clients spread their outputs over the classes and their features over the sphere.",
        ("Weights 2.5 and 0.5 of the public code; optimiser and epochs are those of FedGO's comparison.",),
    ),
    Preset(
        Recipe(name="fedtgp"),
        LocalPlan(objective=FedTgpObjective(), optimizer=Adam(lr=1e-3), epochs=30, batch_size=64),
        "Zhang et al. 2024 (FedTGP)",
        "The server trains prototypes of the classes with a margin; clients draw their features to them.",
        (
            "lambda 0.001 (the public code: 1); server: 1000 epochs, batch 10, SGD 0.005, margin up to 100; options.",
            "The model is averaged as well, within each architecture.",
            "Optimiser and epochs are those of FedGO's comparison.",
        ),
    ),
)
