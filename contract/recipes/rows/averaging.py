"""Presets that only average: FedAvg, its server optimisers, FedProx, SCAFFOLD, FedDisco."""

from contract.local import FedMaObjective, FedProxObjective, LocalPlan, ScaffoldObjective, Sgd
from contract.recipes import parts
from contract.recipes.recipe import Recipe
from contract.recipes.rows.row import Preset

_MEAN = "BatchNorm statistics are averaged like weights, integer buffers take the maximum: independent of order."
_PARAMETERS_ONLY = "Parameters only: BatchNorm statistics stay the weighted mean."
_REDDI = "Reddi et al. 2021 (Adaptive Federated Optimization), Algorithm 2"
_ADAPTIVE = (
    _PARAMETERS_ONLY,
    "The first moment is not corrected for its start at zero, as in the paper.",
    "lr and tau are to be searched for (the paper's grids are powers of ten); 0.1 and 0.001 are in their middle.",
)
_LOCAL = LocalPlan(optimizer=Sgd(lr=0.1), epochs=5, batch_size=64)

ROWS = (
    Preset(
        Recipe(name="fedavg"),
        _LOCAL,
        "McMahan et al. 2017, Algorithm 1",
        "The average of the clients' models, weighted by their numbers of samples.",
        (_MEAN,),
    ),
    Preset(
        Recipe(name="fedavgm", fuse=parts.FuseMomentum()),
        _LOCAL,
        "Hsu et al. 2019; FedDF App. C.2",
        "The server moves along the running sum of the rounds' changes.",
        (
            "v = beta v + delta, beta 0.3 within FedDF's grid of 0.1 to 0.4; form 'ema' is what FedBE and MOON run.",
            "With lr 1 the first round is FedAvg's.",
            _PARAMETERS_ONLY,
        ),
    ),
    Preset(
        Recipe(name="fedprox"),
        LocalPlan(objective=FedProxObjective(), optimizer=Sgd(lr=0.1), epochs=5, batch_size=64),
        "Li et al. 2020 (FedProx); FedDF App. B",
        "FedAvg of clients that are held near the model they were sent.",
        ("mu 0.001, the best of FedGO's grid (E.2); FedDF searched 0.001 to 1.",),
    ),
    Preset(
        Recipe(name="fedadam", fuse=parts.FuseAdam()),
        _LOCAL,
        _REDDI,
        "The mean change of a round is a gradient for Adam on the server.",
        _ADAPTIVE,
    ),
    Preset(
        Recipe(name="fedyogi", fuse=parts.FuseYogi()),
        _LOCAL,
        _REDDI,
        "The mean change of a round is a gradient for Yogi on the server.",
        _ADAPTIVE,
    ),
    Preset(
        Recipe(name="fedadagrad", fuse=parts.FuseAdagrad(beta1=0.0)),
        _LOCAL,
        _REDDI,
        "The mean change of a round is a gradient for Adagrad on the server.",
        _ADAPTIVE,
    ),
    Preset(
        Recipe(name="scaffold", fuse=parts.FuseScaffold()),
        LocalPlan(objective=ScaffoldObjective(), optimizer=Sgd(lr=0.1), epochs=5, batch_size=64),
        "Karimireddy et al. 2020 (SCAFFOLD), Algorithm 1",
        "Clients' steps are corrected by control variates that say how their data differ.",
        (
            "Clients count alike, as in the paper; n_weighted counts samples, as two public codes do.",
            "Control variates stay on the device; one that was lost starts at zero and is left out of c that round.",
            "Option 2 needs plain SGD.",
        ),
    ),
    Preset(
        Recipe(name="fedma", fuse=parts.FuseMatchedMean(by_class=True)),
        LocalPlan(objective=FedMaObjective(), optimizer=Sgd(lr=0.01), epochs=20, batch_size=64),
        "Wang et al. 2020 (FedMA), Algorithm 1; the authors' code",
        "Clients' units are matched before they are averaged, one layer more each round.",
        (
            "Devices start the first round at weights of their own; objective.start=sent is for a pretrained model.",
            "Layers keep the architecture's width. A start_width below 1 leaves room to grow; sigma 0.1 then fills it.",
            "After its last layer a network begins again with its first: FedMA with communication.",
            "Layers that are not frozen yet are matched and averaged as well, so devices always get a whole model.",
            "In the last layer classes count by label counts, which clients share; by_class=false does without.",
        ),
    ),
    Preset(
        Recipe(name="feddisco", fuse=parts.FuseDisco()),
        _LOCAL,
        "Ye et al. 2023 (FedDisco); FedGO App. E.2",
        "Clients whose labels are further from uniform count less.",
        (
            "a 0.5 and b 0.1, the public code's; divergences are divided by their sum over the participants.",
            "Where every weight would be 0, the numbers of samples count.",
            "Clients send their label counts: a leak that they agree to when they enrol.",
        ),
    ),
)
