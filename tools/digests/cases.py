"""The federations that are run: every preset as it is, and every choice of every part at least once, at tiny size."""

from dataclasses import dataclass, field
from typing import Any

from contract.choices import Choice, kind_of, slots, walk
from contract.local import LocalPlan
from contract.recipes.presets import PRESETS, build

ROUNDS = 3
CNN: dict[str, Any] = {"architecture": "cnn-digits", "options": {"widths": [4, 6]}}
MLP: dict[str, Any] = {"architecture": "mlp", "options": {"hidden": [8]}}
HEADS: dict[str, Any] = {"architecture": "mlp", "options": {"hidden": [6], "common_head": True}}
BOTH: list[dict[str, Any]] = [{"name": "large", **CNN}, {"name": "small", **MLP}]
HEADED: list[dict[str, Any]] = [
    {"name": "large", **HEADS},
    {"name": "small", "architecture": "mlp", "options": {"common_head": True}},
]
SGD: dict[str, Any] = {"optimizer": {"kind": "sgd", "lr": 0.05}, "epochs": 1, "batch_size": 8}
ADAM: dict[str, Any] = {"optimizer": {"kind": "adam", "lr": 0.01}, "epochs": 1, "batch_size": 8}


@dataclass(frozen=True)
class Case:
    """One federation.

    Attributes:
        recipe: name of a preset.
        options: laid over it.
        local: the devices' plan; None for the preset's, shortened.
        prototypes: what devices train, in turn.
        sets: the server's data.
        imports: whether the recipe is given the weights of a generator.
    """

    recipe: str
    options: dict[str, Any] = field(default_factory=dict)
    local: dict[str, Any] | None = None
    prototypes: list[dict[str, Any]] = field(default_factory=lambda: [CNN])
    server_model: dict[str, Any] | None = None
    rounds: dict[str, Any] = field(default_factory=dict)
    sets: tuple[str, ...] = ("unlabeled", "test")
    inputs: str = "images"
    imports: bool = False


def _short(name: str) -> dict[str, Any]:
    """Return options that shorten a preset's distillation to a few steps of every phase that it has."""
    recipe = PRESETS[name].recipe
    options: dict[str, Any] = {}
    if recipe.distil is not None and recipe.distil.students.kind != "none":
        schedule: dict[str, Any] = {"steps": 4, "batch_size": 8}
        if recipe.distil.schedule.swa is not None:
            schedule = {"steps": 7, "batch_size": 8, "swa": {"cycle": 2, "start": 2}}
        options["schedule"] = schedule
    if name == "codistillation":
        options["warmup_rounds"] = 1
    if recipe.discriminators is not None:
        options |= {"generator": {"steps": 3, "batch_size": 8}, "plan": {"epochs": 1, "batch_size": 8}}
    if name == "fedgo":  # its networks, but small ones of their kinds, for 8x8
        options["generator"] |= {"options": {"latent": 8, "width": 4}, "critic_options": {"width": 4}}
        options["plan"] |= {"architecture": "disc-cnn-mlp"}
    return options


def _local_of(name: str) -> dict[str, Any]:
    plan = PRESETS[name].local.model_dump(mode="json") | {"epochs": 1, "batch_size": 8}
    if "imitation_epochs" in plan["objective"]:
        plan["objective"]["imitation_epochs"] = 1
    return plan


def _preset(name: str, **more: Any) -> Case:
    options = _short(name) | more.pop("options", {})
    local = more.pop("local", None) or _local_of(name)
    if name == "fedma":
        more = {"prototypes": [MLP]} | more
    if name == "fedet":
        more = {"prototypes": HEADED, "server_model": HEADS} | more
    return Case(name, options, local, **more)


def _fuse(kind: str, options: dict[str, Any] | None = None, **more: Any) -> Case:
    return _preset("fedavg", options={"fuse": {"kind": kind, **(options or {})}}, **more)


def _feddf(*, case: dict[str, Any] | None = None, **options: Any) -> Case:
    short: dict[str, Any] = {"schedule": {"steps": 4, "batch_size": 8}}
    return Case("feddf", short | options, SGD, **(case or {}))


def _posterior(kind: str, *, case: dict[str, Any] | None = None, **more: Any) -> Case:
    return _feddf(case=case, members={"kind": "posterior", "samples": 3, "posterior": {"kind": kind}} | more)


def _fedgo(*, case: dict[str, Any] | None = None, **options: Any) -> Case:
    return Case("fedgo-small", _short("fedgo-small") | options, SGD, **(case or {}))


def _objective(kind: str, case: dict[str, Any] | None = None, plan: dict[str, Any] | None = None, **more: Any) -> Case:
    recipe = {"scaffold": "scaffold", "ds_fl": "ds-fl"}.get(kind, "fedavg")
    local = (plan or SGD) | {"objective": {"kind": kind, **more}}
    return _preset(recipe, local=local, **(case or {}))


def _with(recipe: str = "fedavg", **more: Any) -> Case:
    """Return a preset whose devices run plain SGD with something more."""
    case = {key: more.pop(key) for key in ("options", "prototypes") if key in more}
    return _preset(recipe, local=SGD | more, **case)


ALL: dict[str, Any] = {"rounds": {"clients_per_round": None, "min_updates": 5}}
TWO: dict[str, Any] = {"prototypes": BOTH}
VALID: dict[str, Any] = {"sets": ("unlabeled", "validation", "test")}
RANDOM: dict[str, Any] = {"kind": "random", "count": 2}
GROUPED: dict[str, Any] = {"groups": RANDOM, "members": {"kind": "groups", "rounds": 2}}
PROB: dict[str, Any] = {"epochs": 1, "batch_size": 8, "options": {"output": "probability"}}
FEDGAN: dict[str, Any] = {"kind": "fedgan", "rounds": 2, "epochs": 1, "batch_size": 8}
IMPORTED: dict[str, Any] = {"kind": "imported", "model": "mdl_given", "options": {"latent": 16, "hidden": [6]}}
BINARY: dict[str, Any] = {"kind": "binary"}
TEXT: dict[str, Any] = {
    "inputs": "text",
    "prototypes": [{"architecture": "lstm", "options": {"vocab_size": 30, "width": 6}}],
}

PARTS: dict[str, Case] = {
    # fuse
    "fuse/weighted_mean-two": _fuse("weighted_mean", **TWO),
    "fuse/uniform_mean": _fuse("uniform_mean"),
    "fuse/momentum-ema": _fuse("momentum", {"form": "ema", "lr": 0.5}, **TWO),
    "fuse/momentum-sum": _fuse("momentum", {"beta": 0.4}, **TWO),
    "fuse/adam-two": _fuse("adam", **TWO),
    "fuse/yogi-two": _fuse("yogi", **TWO),
    "fuse/adagrad-two": _fuse("adagrad", **TWO),
    "fuse/scaffold-n_weighted": _preset("scaffold", options={"fuse": {"n_weighted": True, "lr": 0.5}}),
    "fuse/scaffold-two": _preset("scaffold", **TWO),
    "fuse/disco-two": _fuse("disco", **TWO),
    **{f"fuse/disco-{metric}": _fuse("disco", {"metric": metric}) for metric in ("l1", "l2", "cosine")},
    "fuse/median": _fuse("median"),
    "fuse/trimmed_mean": _fuse("trimmed_mean", {"trim": 0.25}),
    "fuse/krum": _fuse("krum", {"byzantine": 1, "keep": 1}, **ALL),
    "fuse/krum-multi": _fuse("krum", {"byzantine": 1, "keep": 3}, **ALL),
    "fuse/clipped_mean": _fuse("clipped_mean", {"max_norm": 0.5}),
    # groups
    "groups/random": _preset("fedavg", options={"groups": RANDOM}),
    "groups/random-two": _preset("fedavgm", options={"groups": RANDOM}, prototypes=BOTH),
    "groups/random-scaffold": _preset("scaffold", options={"groups": RANDOM}),
    "groups/random-fedgkd": _preset("fedgkd", options={"groups": RANDOM}),
    "groups/random-fedtgp": _preset("fedtgp", options={"groups": RANDOM}, rounds={"total": 2}),
    # who is left out, who is drawn
    "drop_worst": _preset("fedavg", options={"drop_worst": {}}, **VALID),
    "drop_worst-feddf": _feddf(drop_worst={"factor": 1.0}, case=VALID | TWO),
    "selection/samples": _preset("fedavg", options={"selection": "samples"}),
    # members
    "members/groups": _feddf(**GROUPED),
    "members/groups-two": _feddf(**GROUPED, case=TWO),
    "members/posterior-dirichlet": _posterior("dirichlet", case=TWO),
    "members/posterior-gaussian": _posterior("gaussian", case=TWO),
    "members/posterior-swag": _posterior("swag", case=TWO),
    "members/posterior-alone": _posterior("swag", clients=False, mean=False),
    "members/posterior-mean": _posterior("gaussian", clients=False, samples=0),
    "members/posterior-mean_and_clients": _posterior("gaussian", samples=0, case=TWO),
    "members/posterior-no_batch_norm": _posterior("gaussian", sample_batch_norm=False),
    # weigh
    "weigh/samples": _feddf(weigh={"kind": "samples"}, case=TWO),
    "weigh/variance-probs": _feddf(weigh={"kind": "variance"}),
    "weigh/variance-logits": _feddf(weigh={"kind": "variance", "space": "logits"}),
    "weigh/entropy": _feddf(weigh={"kind": "entropy", "tau": 0.5}, case=TWO),
    "weigh/dafkd": _fedgo(weigh={"kind": "dafkd"}),
    "weigh/dafkd-double": _fedgo(weigh={"kind": "dafkd", "link": "double_sigmoid"}),
    "weigh/odds-sigmoid": _fedgo(weigh={"kind": "odds", "link": "sigmoid"}, case=TWO),
    "weigh/odds-prob": _fedgo(weigh={"kind": "odds", "link": "prob"}, plan=PROB),
    "weigh/product": _fedgo(weigh={"kind": "product", "factors": [{"kind": "odds"}, {"kind": "entropy"}]}),
    "weigh/odds-groups": _fedgo(**GROUPED),
    "weigh/product-posterior": _feddf(
        members={"kind": "posterior", "samples": 2, "posterior": {"kind": "dirichlet"}},
        weigh={"kind": "product", "factors": [{"kind": "variance"}, {"kind": "entropy"}, {"kind": "uniform"}]},
    ),
    # combine and objective
    "combine/probs": _feddf(combine={"kind": "probs"}),
    "combine/probs-sharpen": _feddf(combine={"kind": "probs", "sharpen": 2.0}, weigh={"kind": "entropy"}),
    "combine/era": _feddf(combine={"kind": "era"}),
    "combine/consensus": _preset("fedet", options={"weigh": {"kind": "uniform"}}),
    "objective/kl-4": _feddf(objective={"kind": "kl", "temperature": 4.0}),
    "objective/kl-unscaled": _feddf(objective={"kind": "kl", "temperature": 3.0, "scale_t2": False}),
    "objective/soft_ce": _feddf(objective={"kind": "soft_ce"}),
    "objective/fedet": _preset("fedet", options={"objective": {"diversity": 0.5}}),
    # students
    "students/prototypes-two": _feddf(case=TWO),
    "students/frozen": _feddf(students={"kind": "prototypes", "batch_norm": "frozen"}),
    "students/recalibrate": _feddf(students={"kind": "prototypes", "batch_norm": "recalibrate"}),
    "students/main": _feddf(**GROUPED, students={"kind": "main"}),
    "students/main-two": _feddf(groups=RANDOM, students={"kind": "main"}, case=TWO),
    "students/all": _feddf(**GROUPED, students={"kind": "all", "warmup_rounds": 1}),
    "students/none": _feddf(students={"kind": "none"}, case=TWO),
    "students/none-posterior": _feddf(
        students={"kind": "none"}, members={"kind": "posterior", "samples": 2, "posterior": {"kind": "dirichlet"}}
    ),
    "students/server": _preset("fedet", options={"students": {"batch_norm": "frozen"}}),
    # data
    "data/augment": _feddf(data={"kind": "unlabeled", "augment": {"flip": True, "pad": 1}}),
    "data/labeled": _feddf(data={"kind": "labeled"}, objective={"kind": "kl", "temperature": 4.0}),
    "data/generated": _fedgo(data={"kind": "generated", "count": 18}),
    "data/generated-uniform": _fedgo(data={"kind": "generated", "count": 18}, weigh={"kind": "uniform"}),
    "data/noise": _feddf(data={"kind": "noise", "count": 18, "low": -1.0}, case={"sets": ("test",)}),
    # schedule
    "schedule/epochs-constant": _feddf(schedule={"epochs": 2, "batch_size": 8, "lr": "constant"}),
    "schedule/across_rounds": _feddf(schedule={"epochs": 2, "batch_size": 8, "lr": "cosine_across_rounds"}),
    "schedule/sgd-momentum": _feddf(
        schedule={"steps": 4, "batch_size": 8, "clip_norm": 0.1, "optimizer": {"kind": "sgd", "momentum": 0.9}}
    ),
    "schedule/early_stop": _feddf(
        schedule={"steps": 12, "batch_size": 8, "early_stop": {"eval_every": 2, "patience": 4}}, case=VALID | TWO
    ),
    "schedule/swa": _feddf(
        schedule={"steps": 9, "batch_size": 8, "early_stop": None, "swa": {"cycle": 3, "start": 1}},
        students={"kind": "prototypes", "batch_norm": "recalibrate"},
    ),
    # generators and discriminators
    "generator/wgan_gp-untrained": _fedgo(generator={"kind": "wgan_gp", "steps": 0}),
    "generator/imported": _fedgo(generator=IMPORTED, case={"imports": True}),
    "generator/fedgan": _fedgo(generator=FEDGAN, data={"kind": "generated", "count": 18}, case={"sets": ("test",)}),
    "discriminators/disc-mlp": _fedgo(plan={"architecture": "disc-mlp", "epochs": 2, "batch_size": 8, "flip": True}),
    # what devices minimise
    "local/fedprox": _objective("fedprox", mu=0.5, case=TWO),
    "local/scaffold-1": _objective("scaffold", option=1),
    "local/scaffold-1-momentum": _objective("scaffold", option=1, plan=ADAM, case=TWO),
    "local/fedgkd": _objective("fedgkd", gamma=0.2, history=2, case=TWO),
    "local/moon": _objective("moon", case=TWO),
    "local/feduv": _objective("feduv", case=TWO),
    "local/fedtgp": _objective("fedtgp", weight=1.0, case={"prototypes": HEADED, "rounds": {"total": 2}}),
    "local/ds_fl": _objective("ds_fl", imitation_epochs=2, case=TWO),
    "local/adam": _preset("fedavg", local=ADAM),
    "local/fedgkd-feddf": _preset("feddf", local=SGD | {"objective": {"kind": "fedgkd", "history": 2}}, **TWO),
    # how updates travel
    "precision/binary": _with(precision=BINARY),
    "precision/binary-two": _with(precision=BINARY, prototypes=BOTH),
    "precision/feddf": _with("feddf", precision=BINARY, prototypes=BOTH),
    "precision/median": _with(precision=BINARY, options={"fuse": {"kind": "median"}}),
    "precision/adam": _with(precision=BINARY, options={"fuse": {"kind": "adam"}}),
    "privacy": _with(privacy={"noise_multiplier": 0.5}, prototypes=[MLP]),
    "local/clip_norm": _with(clip_norm=0.1),
    "local/rate-cosine": _with(rate_over_rounds={"kind": "cosine"}),
    "local/rate-exponential": _with(rate_over_rounds={"kind": "exponential", "factor": 0.5}),
    # token ids
    "text/fedavg": _preset("fedavg", local=SGD, **TEXT),
    "text/feddf": _feddf(weigh={"kind": "entropy"}, case=TEXT),
}


def _chosen(case: Case) -> set[type[Choice]]:
    """Return the choices that a case makes."""
    local = LocalPlan.model_validate(case.local) if case.local else PRESETS[case.recipe].local
    return {type(choice) for choice in walk([build(case.recipe, case.options), local])}


def _default(choice: type[Choice]) -> Case:
    """Return a case of a choice as it is by default."""
    kind, slot = kind_of(choice), choice.slot
    if slot in ("fuse", "groups"):
        return _preset("fedavg", options={slot: {"kind": kind}})
    if slot == "local.objective":
        return _objective(kind)
    case = _fedgo if "scores" in choice.declares.needs else _feddf
    return case(**{slot.removeprefix("distil."): {"kind": kind}})


PLACES = ("fuse", "groups", "distil.members", "distil.weigh", "distil.combine", "distil.objective", "distil.students")
"""Slots whose choices can be tried as they are by default; one that no case above makes is tried so."""
_ROWS = {f"preset/{name}": _preset(name) for name in PRESETS}
_MADE = {choice for case in (*_ROWS.values(), *PARTS.values()) for choice in _chosen(case)}
DEFAULTS = {
    f"{slot}/{kind_of(choice)}": _default(choice)
    for slot, found in slots().items()
    for choice in found
    if slot in (*PLACES, "local.objective") and choice not in _MADE
}
CASES: dict[str, Case] = _ROWS | PARTS | DEFAULTS
