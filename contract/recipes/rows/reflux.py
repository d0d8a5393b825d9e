"""Presets of potstill's own: Reflux, which is FedGO with a memory of absent clients and devices that do not unlearn."""

from contract.local import LocalPlan, PriorAdjustedObjective
from contract.recipes import parts
from contract.recipes.recipe import Distillation, Recipe
from contract.recipes.rows.distillation import FEDGO_LOCAL, FEDGO_SCHEDULE
from contract.recipes.rows.row import Preset

_SOURCE = "ours; docs/reflux.md"
_LOCAL = LocalPlan.model_validate(FEDGO_LOCAL.model_dump() | {"objective": PriorAdjustedObjective()})
_CHOICES = (
    "Discriminators are FedGO's, of one sigmoid, and their odds are balanced once on the server set.",
    "Whoever is sure of a sample counts more on it: the entropy of its probabilities over tau = 0.3.",
    "Optimisers, epochs and networks are those of fedgo-small.",
)


def _recipe(name: str, members: parts.MembersChoice, sharpness: float = 1.0, tau: float = 0.3) -> Recipe:
    weigh = parts.WeighProduct(factors=(parts.WeighBalancedOdds(sharpness=sharpness), parts.WeighEntropy(tau=tau)))
    return Recipe(
        name=name,
        distil=Distillation(members=members, weigh=weigh, schedule=FEDGO_SCHEDULE),
        discriminators=parts.Discriminators(),
    )


ROWS = (
    Preset(
        _recipe("reflux", parts.MembersBank()),
        _LOCAL,
        _SOURCE,
        "FedGO whose teachers are all clients ever seen, by odds that add up, and whose clients unlearn less.",
        (
            *_CHOICES,
            "What clients said of the server set last is kept, 4 bytes a sample and class, within members.max_mib; "
            "beyond it the teachers of a round are those of reflux-anchor.",
        ),
    ),
    Preset(
        _recipe("reflux-sharp", parts.MembersBank(), sharpness=5, tau=1),
        _LOCAL,
        _SOURCE,
        "Reflux for clients of few samples each: their discriminators took few steps, and their odds count to a power.",
        (
            *_CHOICES[:1],
            "Odds to the power of 5 before they are balanced, and the entropy over tau = 1.",
            *_CHOICES[2:],
        ),
    ),
    Preset(
        _recipe("reflux-server", parts.MembersBank()),
        FEDGO_LOCAL,
        _SOURCE,
        "Reflux with plain training on devices: the server's parts alone.",
        _CHOICES,
    ),
    Preset(
        _recipe("reflux-anchor", parts.MembersAnchor()),
        _LOCAL,
        _SOURCE,
        "Reflux in constant memory: the model that a round started from counts for all absent clients.",
        (*_CHOICES, "In the first round, before anybody has trained it, that model is no teacher."),
    ),
)
