"""The one door from golden vectors to the product: rules by name to its functions, no arithmetic of its own."""

import json
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import torch
from pydantic import ValidationError

from client_sdk.objectives import checks, feduv, moon, scaffold
from client_sdk.objectives.fedprox import proximal
from contract import grouping, lowbit, measures
from contract.errors import RuleError
from contract.local import FedProxObjective
from contract.recipes import parts
from contract.tensors import BUFFERS_KEY, TensorError, TensorFile, write_file
from worker.parts import (
    arrays,
    combine,
    disco,
    fedet,
    fedtgp,
    filters,
    fuse,
    groups,
    objectives,
    posterior,
    posterior_files,
    schedules,
    server_optim,
    swa,
    weigh,
)
from worker.parts import scaffold as scaffold_server_part
from worker.parts.blocks import Source, header_of, narrow
from worker.registry import implements

Inputs = dict[str, Any]
Rule = Callable[[Inputs], dict[str, Any]]

NOT_BUILT: dict[str, str] = {}
"""Rules of methods that are not in the product yet -> the method."""

_RULES: dict[str, Rule] = {}


def register(function: Rule) -> Rule:
    """Register a function under its own name."""
    _RULES[function.__name__] = function
    return function


def built() -> frozenset[str]:
    """Return the names of the rules that `evaluate` knows."""
    return frozenset(_RULES)


def evaluate(rule: str, inputs: dict) -> dict:  # type: ignore[type-arg]
    """Run one rule of the product; a domain error becomes {"error": code}.

    Raises:
        KeyError: the rule is not built; see NOT_BUILT.
    """
    try:
        return {key: plain(value) for key, value in _RULES[rule](inputs).items()}
    except RuleError as error:
        return {"error": error.code}
    except TensorError:
        return {"error": "schema_mismatch"}
    except ValidationError:
        return {"error": "bad_option"}


def plain(value: Any) -> Any:
    """Turn arrays and tensors into lists and Python scalars, and what is not finite into its name."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, torch.Tensor):
        return plain(value.detach().tolist())
    if isinstance(value, np.ndarray):
        wide = value.astype(np.float64) if value.dtype == ml_dtypes.bfloat16 else value
        return plain(wide.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(float(value))
    return value.item() if isinstance(value, np.generic) else value


def floats(value: Any) -> Any:
    """Turn the strings that stand for non-finite numbers into numbers, whole numbers into floats; lists stay lists."""
    if isinstance(value, list):
        return [floats(item) for item in value]
    if isinstance(value, dict):
        return {key: floats(item) for key, item in value.items()}
    return value if value is None or isinstance(value, bool) else float(value)


def counts_of(inputs: Inputs, models: Any) -> Any:
    """Return n_k; without it all models count alike."""
    return [1.0] * len(models) if inputs.get("n") is None else floats(inputs["n"])


def number(inputs: Inputs, name: str, default: float) -> float:
    """Return an option as a number; the product's own default stands for one that is not given."""
    return default if inputs.get(name) is None else float(inputs[name])


def array(value: Any, dtype: str = "float64") -> Any:
    """Turn nested lists into an array.

    Raises:
        RuleError: schema_mismatch, for rows of unequal length: there is no such array.
    """
    kind = {"bfloat16": ml_dtypes.bfloat16}.get(dtype, dtype)
    whole = dtype.startswith(("int", "uint", "bool"))
    try:
        with np.errstate(over="ignore"):
            return np.asarray(value if whole else floats(value), dtype=kind)
    except (ValueError, OverflowError) as error:
        raise RuleError("schema_mismatch", "the rows differ in length") from error


def tensor(value: Any) -> torch.Tensor:
    """Turn nested lists into a float64 tensor; errors as `array`."""
    return torch.from_numpy(array(value))


# --------------------------------------------------------------------------------------------------- models as files
State = dict[str, Any]


def _state(inputs: Inputs, state: Any) -> State:
    meta = inputs.get("meta") or {}
    return {name: array(value, meta.get(name, {}).get("dtype", "float64")) for name, value in state.items()}


def one_tensor(values: Any) -> list[State]:
    """Return models of one tensor each.

    Raises:
        RuleError: schema_mismatch, for what is no list of arrays.
    """
    if not isinstance(values, list):
        raise RuleError("schema_mismatch", "a single number, where one array for each is needed")
    return [{"w": array(value)} for value in values]


@contextmanager
def folder() -> Iterator[Path]:
    """Yield a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


def written(path: Path, state: State, buffers: Sequence[str] = ()) -> Path:
    """Write a model, with its buffers named, and return where."""
    write_file(path, state, {BUFFERS_KEY: json.dumps(list(buffers))})
    return path


def read(path: Path) -> State:
    """Return a model's tensors."""
    with TensorFile(path) as file:
        return {name: file.read(name) for name in file.names}


def sources(root: Path, states: Sequence[State], weights: Sequence[float]) -> list[Source]:
    """Write the clients' models and return them in this order.

    Raises:
        RuleError: schema_mismatch, when there is not one weight for each.
    """
    counts = arrays.floats("weights", weights, 1)
    if len(states) != len(counts):
        raise RuleError("schema_mismatch", f"{len(states)} models but {len(counts)} weights")
    names = [f"client-{index:06}" for index in range(len(states))]
    return [
        Source(name, written(root / name, state), float(weight))
        for name, state, weight in zip(names, states, counts, strict=True)
    ]


def averaged(states: Sequence[State], weights: Sequence[float], sent: State | None = None, **options: Any) -> State:
    """Return the weighted average, as rounds make it of files; `sent` is the model that the clients started from."""
    with folder() as root:
        base = None if sent is None else header_of(written(root / "sent", sent))
        fuse.average_files(sources(root, states, weights), root / "out", base=base, **options)
        return read(root / "out")


def by_model(
    states: Sequence[State], weights: Sequence[float], owners: Sequence[str], sent: Mapping[str, State]
) -> dict[str, State]:
    """Return each model's average; those that nobody with samples trained are as they were sent."""
    if not len(states) == len(weights) == len(owners):
        raise RuleError("schema_mismatch", "there must be one model, number of samples and owner a client")
    named = [(f"client {index}", owner) for index, owner in enumerate(owners)]
    found, result = groups.by_model(named, list(sent)), {}
    for name, before in sent.items():
        mine = [index for index in found.get(name, []) if weights[index] != 0]
        one = averaged([states[i] for i in mine], [weights[i] for i in mine], before) if mine else before
        result[name] = {key: arrays.finite(key, value) for key, value in one.items()}
    return result


# ------------------------------------------------------------------------------------ teachers, one after another
def outputs(inputs: Inputs) -> Any:
    """Return the teachers' logits [m, B, C], or those whose softmax is their `probs`, as predictions are read.

    Raises:
        RuleError: no_participants, schema_mismatch, non_finite, out_of_range.
    """
    name = "logits" if inputs.get("logits") is not None else "probs"
    found = shaped(name, arrays.stacked(name, floats(inputs[name])), 3)
    return found if name == "logits" else combine.log_probabilities(found)


def shaped(name: str, values: Any, axes: int) -> Any:
    """Return an array that has so many axes, the last of them not empty where it is the classes'.

    Raises:
        RuleError: schema_mismatch.
    """
    found = arrays.floats(name, values, axes)
    if axes == 3 and not found.shape[2]:
        raise RuleError("schema_mismatch", f"{name}: there are no classes")
    return found


def teachers(logits: Any) -> Any:
    """Return logits [m, B, C] of one teacher at least; those of a teacher without weight may be anything.

    Raises:
        RuleError: no_participants, schema_mismatch.
    """
    if logits.shape[:1] == (0,):
        raise RuleError("no_participants", "there is no teacher")
    return shaped("logits", logits, 3)


def weighed(choice: Any, logits: Any, counts: Sequence[float] | None = None, scores: Any = None) -> list[Any]:
    """Return each teacher's log weights [B]; who has no samples is no teacher."""
    given = [1.0] * len(logits) if counts is None else counts
    fuse.contributors(given)
    rows = [None] * len(logits) if scores is None else scores
    return [weigh.log_weights(choice, *each) for each in zip(given, logits, rows, strict=True)]


def combined(choice: Any, logits: Any, rows: Sequence[Any]) -> Any:
    """Return the pseudo-labels' logits [B, C] that a combiner makes of logits [m, B, C] and log weights, m of [B]."""
    with ExitStack() as stack:
        scratch = stack.enter_context(folder()) / "outputs"
        combiner = implements.of(choice)(choice, combine.Form(logits.shape[1], logits.shape[2:]), scratch, stack)
        for each, row in zip(logits, rows, strict=True):
            combiner.add(0, each, row)
        return combiner.result(weigh.normalise(rows)).logits


def given_rows(inputs: Inputs, logits: Any) -> list[Any]:
    """Return the logarithms of weights [m, B] that are given, as every weighting makes them; all alike without any.

    Raises:
        RuleError: schema_mismatch, bad_weight, no_positive_weight.
    """
    if inputs.get("weights") is None:
        return weighed(parts.WeighUniform(), logits)
    weights = array(inputs["weights"])
    if logits.shape[:2] != weights.shape:
        raise RuleError("schema_mismatch", f"logits {logits.shape} do not go with weights {weights.shape}")
    for sample in weights.T:
        fuse.contributors(sample)
    with np.errstate(divide="ignore"):
        return list(np.log(weights))


def softened(logits: Any, temperature: float) -> Any:
    """Return softmax(logits / T), as students read their targets."""
    return objectives.log_softened(torch.from_numpy(logits), temperature).exp()


def odds(inputs: Inputs) -> tuple[parts.WeighOdds, list[float], Any]:
    """Return FedGO's weighting, n_k and the scores [m, B].

    Raises:
        RuleError: no_participants, schema_mismatch.
    """
    scores = inputs["D"] if inputs["link"] == "prob" or "a" not in inputs else inputs["a"]
    counts, found = (arrays.floats(name, floats(each)) for name, each in (("n", inputs["n"]), ("scores", scores)))
    if (0,) in (counts.shape[:1], found.shape[:1]):
        raise RuleError("no_participants", "there is no teacher")
    fuse.contributors(counts.tolist())
    if shaped("scores", found, 2).shape[:1] != counts.shape:
        raise RuleError("schema_mismatch", f"{len(counts)} numbers of samples but {len(found)} rows of scores")
    return parts.WeighOdds(link=inputs["link"]), list(counts), found


# ------------------------------------------------------------------------------------------------------ fuse, schedules
@register
def weighted_average(inputs: Inputs) -> dict[str, Any]:
    states = [_state(inputs, state) for state in inputs["states"]]
    counts = counts_of(inputs, states)
    with folder() as root:
        given = sources(root, states, counts)
        names = fuse.average_files(given, root / "out", int_rule=inputs.get("int_policy", "max"))
        kept = [index for index, source in enumerate(given) if source.name in names]
        return {"state": read(root / "out"), "n_total": sum(counts[index] for index in kept), "contributors": kept}


@register
def cosine_lr(inputs: Inputs) -> dict[str, Any]:
    return {"lr": [schedules.cosine_lr(floats(inputs["lr0"]), step, inputs["total"]) for step in inputs["steps"]]}


@register
def early_stop(inputs: Inputs) -> dict[str, Any]:
    options = parts.EarlyStop(eval_every=inputs["eval_every"], patience=inputs["patience"])
    total = schedules.some_steps(inputs["total"])
    accuracies = arrays.finite("accuracies", arrays.floats("accuracies", floats(inputs["val_acc"]), 1))
    watch = schedules.Watch()
    for step, accuracy in zip(range(options.eval_every, total + 1, options.eval_every), accuracies, strict=False):
        watch = watch.seen(step, float(accuracy))
        if watch.exhausted(step, options.patience):
            return {"stop_step": step, "best_step": watch.best_step, "stopped_early": True}
    return {"stop_step": total, "best_step": watch.best_step, "stopped_early": False}


# ----------------------------------------------------------------------------------------------------------- weightings
@register
def weights_uniform(inputs: Inputs) -> dict[str, Any]:
    logits = np.zeros((max(inputs["K"], 0), max(inputs["B"], 0), 1))
    return {"weights": weigh.normalise([weigh.log_weights(parts.WeighUniform(), 1, each, None) for each in logits])}


@register
def weights_variance(inputs: Inputs) -> dict[str, Any]:
    choice = parts.WeighVariance(space=inputs.get("space", "probs"))
    return {"weights": weigh.normalise(weighed(choice, outputs(inputs)))}


@register
def weights_entropy(inputs: Inputs) -> dict[str, Any]:
    logits, choice = outputs(inputs), parts.WeighEntropy(tau=number(inputs, "tau", 1.0))
    return {"weights": weigh.normalise(weighed(choice, logits)), "entropy": weigh.entropy(logits)}


@register
def weights_dafkd(inputs: Inputs) -> dict[str, Any]:
    """Of the discriminators' probabilities D or, as rounds have them, of their scores a."""
    name = "D" if inputs.get("D") is not None else "a"
    given = shaped(name, arrays.stacked(name, floats(inputs[name])), 2)
    choice = parts.WeighDafkd(link=inputs.get("link", "sigmoid" if name == "a" else "prob"))
    return {"weights": weigh.normalise(weighed(choice, given[:, :, None], scores=given))}


@register
def weights_fedgo(inputs: Inputs) -> dict[str, Any]:
    choice, counts, scores = odds(inputs)
    rows = weighed(choice, np.zeros((*scores.shape, 1)), counts, scores)
    return {"weights": weigh.normalise(rows), "odds": np.exp(weigh.log_odds(scores, choice.link))}


# --------------------------------------------------------------------------------------------------------- combinations
@register
def feddf_avglogits(inputs: Inputs) -> dict[str, Any]:
    logits = outputs(inputs)
    made = combined(parts.CombineLogits(), logits, given_rows(inputs, logits))
    return {"target": softened(made, number(inputs, "temperature", 1.0))}


@register
def weighted_pseudo_label(inputs: Inputs) -> dict[str, Any]:
    """The logits of a teacher of weight 0 may be anything."""
    logits = outputs(inputs) if inputs.get("logits") is None else teachers(array(inputs["logits"]))
    rows = given_rows(inputs, logits)
    return {"target": softened(combined(parts.CombineLogits(), logits, rows), number(inputs, "temperature", 1.0))}


@register
def fedgo_pseudo_label(inputs: Inputs) -> dict[str, Any]:
    choice, counts, scores = odds(inputs)
    logits = outputs(inputs) if inputs.get("logits") is None else teachers(array(inputs["logits"]))
    if logits.shape[:2] != scores.shape:
        raise RuleError("schema_mismatch", f"logits {logits.shape} do not go with scores {scores.shape}")
    rows = weighed(choice, logits, counts, scores)
    made = combined(parts.CombineLogits(), logits, rows)
    return {"weights": weigh.normalise(rows), "target": softened(made, number(inputs, "temperature", 1.0))}


@register
def avg_probs(inputs: Inputs) -> dict[str, Any]:
    logits = outputs(inputs)
    return {"target": measures.softmax(combined(parts.CombineProbs(), logits, given_rows(inputs, logits)))}


@register
def fedbe_target(inputs: Inputs) -> dict[str, Any]:
    logits, sharpened = outputs(inputs), parts.CombineProbs(sharpen=number(inputs, "sharpen_power", 2.0))
    rows = given_rows(inputs, logits)
    mean, target = (measures.softmax(combined(choice, logits, rows)) for choice in (parts.CombineProbs(), sharpened))
    return {"mean": mean, "target": target}


# ----------------------------------------------------------------------------------------------------------- objectives
@register
def kd_kl(inputs: Inputs) -> dict[str, Any]:
    """The teacher's logits, or its probabilities as predictions are read: logits whose softmax they are."""
    student = torch.from_numpy(arrays.finite("student", array(inputs["student_logits"]))).requires_grad_(True)
    if inputs.get("teacher_logits") is not None:
        teacher = arrays.finite("teacher", array(inputs["teacher_logits"]))
    else:
        given = next(inputs[name] for name in ("teacher_probs", "probs", "target") if inputs.get(name) is not None)
        teacher = combine.log_probabilities(array(given))
    scaled = bool(inputs.get("scale_t2", inputs.get("kd_scale_t2", parts.ObjectiveKl().scale_t2)))
    loss = objectives.kl(student, torch.from_numpy(teacher), number(inputs, "temperature", 1.0), scaled)
    loss.backward()
    return {"loss": loss, "grad": student.grad}


@register
def soft_cross_entropy(inputs: Inputs) -> dict[str, Any]:
    """The target, or the teacher's probabilities or logits."""
    student = arrays.finite("student", array(inputs["student_logits"]))
    if inputs.get("teacher_logits") is not None:
        target = measures.softmax(arrays.finite("teacher", array(inputs["teacher_logits"])))
    else:
        given = next(inputs[name] for name in ("target", "teacher_probs", "probs") if inputs.get(name) is not None)
        target = arrays.probabilities("target", array(given), slack=1e-6)
    return {"loss": objectives.soft_cross_entropy(torch.from_numpy(student), torch.from_numpy(target))}


@register
def fedprox_term(inputs: Inputs) -> dict[str, Any]:
    """The penalty's gradient joins the one that is given, as it joins that of the data's loss."""
    w, w0 = (tensor(inputs[name]) for name in ("w", "w0"))
    gradient = torch.zeros_like(w) if inputs.get("grad") is None else tensor(inputs["grad"])
    checks.same_shape("w, w0 and gradient", w, w0, gradient)
    checks.finite("w, w0 and gradient", w, w0, gradient)
    w.requires_grad_(True).grad = gradient
    penalty = proximal([w], [w0], FedProxObjective(mu=number(inputs, "mu", FedProxObjective().mu)).mu)
    penalty.backward()
    return {"penalty": penalty, "grad": w.grad}


# -------------------------------------------------------------------------------------------------- server optimisation
@register
def fedavgm_step(inputs: Inputs) -> dict[str, Any]:
    form: Any = inputs.get("momentum_form", inputs.get("form", "sum"))
    optimizer = server_optim.Momentum(floats(inputs["beta"]), number(inputs, "server_lr", 1.0), form)
    roles = inputs.get("meta") or {}
    buffers = [name for name, about in roles.items() if about.get("role") == "buffer"]
    with folder() as root:
        previous = written(root / "previous", _state(inputs, inputs["prev"]), buffers)
        average = written(root / "average", _state(inputs, inputs["avg"]), buffers)
        memory, wide = None, {"float64": "float64"}
        if inputs.get("velocity") is not None:
            velocity = {
                name: array(value, wide.get(roles.get(name, {}).get("dtype", "float64"), "float32"))
                for name, value in inputs["velocity"].items()
            }
            held = {server_optim.MOMENTUM + name: value for name, value in velocity.items()}
            memory = written(root / "memory", held)
        server_optim.step_files(optimizer, previous, average, memory, root / "new", root / "kept")
        kept = {name.removeprefix(server_optim.MOMENTUM): value for name, value in read(root / "kept").items()}
        return {"state": read(root / "new"), "velocity": kept}


@register
def scaffold_server(inputs: Inputs) -> dict[str, Any]:
    rows = {name: floats(inputs[name]) for name in ("delta_y", "delta_c")}
    counts = [1.0] * len(rows["delta_y"]) if inputs.get("n") is None else floats(inputs["n"])
    if not len(rows["delta_y"]) == len(rows["delta_c"]) == len(counts):
        raise RuleError("schema_mismatch", "there must be one delta_y, delta_c and number of samples a client")
    kept = fuse.contributors(counts) if counts else []
    moves, changes = (arrays.stacked(name, [given[index] for index in kept]) for name, given in rows.items())
    step = scaffold_server_part.ServerStep(
        [counts[index] for index in kept],
        inputs["num_clients_total"],
        number(inputs, "server_lr", 1.0),
        n_weighted=inputs.get("n_weighted", inputs.get("n") is not None),
    )
    x, c = (arrays.finite(name, array(inputs[name])) for name in ("x", "c"))
    if not x.shape == c.shape == moves.shape[1:] == changes.shape[1:]:
        raise RuleError("schema_mismatch", "x, c, delta_y and delta_c must have one shape")
    return {"x": narrow("x", step.model(x, moves), "F64"), "c": narrow("c", step.control(c, changes), "F64")}


@register
def scaffold_client(inputs: Inputs) -> dict[str, Any]:
    gradient = None if inputs.get("grad_at_x") is None else tensor(inputs["grad_at_x"])
    x, y, c, c_i = (tensor(inputs[name]) for name in ("x", "y", "c", "c_i"))
    made = scaffold.new_variate(x, y, c, c_i, floats(inputs["lr"]), inputs["steps"], inputs.get("option", 2), gradient)
    return {"c_i_new": made.new, "delta_c": made.delta_c, "delta_y": made.delta_y}


@register
def feddisco_weights(inputs: Inputs) -> dict[str, Any]:
    counts, options = floats(inputs["n"]), {key: floats(inputs[key]) for key in ("a", "b") if key in inputs}
    if inputs.get("d") is not None:
        result = disco.weights_from(counts, floats(inputs["d"]), **options)
    else:
        target = None if inputs.get("target") is None else floats(inputs["target"])
        metric = inputs.get("metric", "kl")
        result = disco.weights(counts, floats(inputs["class_counts"]), metric=metric, target=target, **options)
    return {"weights": result.weights, "d": result.discrepancy, "fallback": result.fallback}


@register
def drop_worst(inputs: Inputs) -> dict[str, Any]:
    options = {"factor": floats(inputs["factor"])} if "factor" in inputs else {}
    result = filters.drop_worst(floats(inputs["val_acc"]), inputs["num_classes"], **options)
    return {"kept": result.kept, "threshold": result.threshold, "all_dropped": result.all_dropped}


@register
def binarize(inputs: Inputs) -> dict[str, Any]:
    """Round w + memory, and say what that loses: the operator of error feedback, whatever w is.

    No device carries the memory on: a residual of one round's weights says nothing of the next round's model.
    """
    memory = None if inputs.get("memory") is None else array(inputs["memory"])
    result = lowbit.binarize(array(inputs["w"]), memory)
    return {"binary": result.binary, "scale": result.scale, "memory": result.memory}


# ----------------------------------------------------------------------------------------------------------- posteriors
@register
def gaussian_posterior(inputs: Inputs) -> dict[str, Any]:
    with folder() as root:
        mean, var, floor = (root / name for name in ("mean", "var", "floor"))
        given = sources(root, one_tensor(inputs["ws"]), counts_of(inputs, inputs["ws"]))
        posterior_files.posterior_files(given, mean, var, floor)
        return {"mean": read(mean)["w"], "var": read(var)["w"]}


@register
def gaussian_sample(inputs: Inputs) -> dict[str, Any]:
    mean, var, eps = (arrays.finite(name, array(inputs[name])) for name in ("mean", "var", "eps"))
    floor = None if inputs.get("floor") is None else arrays.finite("floor", array(inputs["floor"]))
    return {"w": narrow("w", posterior.gaussian_sample(mean, var, eps, number(inputs, "scale", 1.0), floor), "F64")}


@register
def dirichlet_combination(inputs: Inputs) -> dict[str, Any]:
    with np.errstate(divide="ignore", invalid="ignore"):
        coefficients = posterior.coefficients(counts_of(inputs, inputs["ws"]), np.log(array(inputs["gamma"])))
    return {"w": averaged(one_tensor(inputs["ws"]), list(coefficients))["w"], "coefficients": coefficients}


@register
def swa_schedule(inputs: Inputs) -> dict[str, Any]:
    high, low, cycle, start = floats(inputs["lr_hi"]), floats(inputs["lr_lo"]), inputs["cycle"], inputs["start"]
    steps = range(1, schedules.some_steps(inputs["total"]) + 1)
    return {
        "lr": [schedules.swa_lr(high, low, cycle, step) for step in steps],
        "collect": [step for step in steps if schedules.swa_collects(cycle, start, step)],
    }


@register
def swa_average(inputs: Inputs) -> dict[str, Any]:
    mean = swa.RunningMean()
    for snapshot in one_tensor(inputs["snapshots"]):
        mean.add(snapshot)
    return {"w": mean.result()["w"]}


# ------------------------------------------------------------------------------------------------------- Fed-ET, FedSDD
@register
def fedet_representation(inputs: Inputs) -> dict[str, Any]:
    """Plain, or by n_k where clients are not drawn in proportion to it."""
    heads = arrays.stacked("h", floats(inputs["h"]))
    counts = counts_of(inputs, heads)
    return {"h_bar": averaged([{"w": head} for head in heads], counts)["w"]}


@register
def fedet_small_average(inputs: Inputs) -> dict[str, Any]:
    ids, models = [str(name) for name in inputs["model_ids"]], one_tensor(inputs["models"])
    sent = {str(name): {"w": array(value)} for name, value in inputs["previous"].items()}
    counts = counts_of(inputs, models)
    made = by_model(models, counts, ids, sent)
    return {"models": {name: state["w"] for name, state in made.items()}}


@register
def fedet_targets(inputs: Inputs) -> dict[str, Any]:
    logits, choice = outputs(inputs), parts.WeighVariance(space=inputs.get("space", "probs"))
    other = inputs.get("weights") is not None  # than eq. 3
    alpha = weigh.normalise(given_rows(inputs, logits) if other else weighed(choice, logits))
    targets = fedet.targets(logits, alpha)
    server, label, diverse = tensor(inputs["server_logits"]), torch.from_numpy(targets.label), targets.div_target
    diversity = number(inputs, "lam", number(inputs, "lambda", parts.ObjectiveFedEt().diversity))
    objective = parts.ObjectiveFedEt(diversity=diversity)
    loss = fedet.loss(server, label, torch.from_numpy(diverse), objective.diversity)
    cross_entropy, divergence = fedet.terms(server, label, torch.from_numpy(diverse))
    return {
        "alpha": alpha,
        "consensus": targets.consensus,
        "label": targets.label,
        "div_mask": targets.div_mask.astype(np.int64),
        "div_target": diverse,
        "div_mass": targets.div_mass,
        "ce": cross_entropy,
        "div_kl": divergence,
        "loss": loss,
    }


@register
def fedsdd_group_sizes(inputs: Inputs) -> dict[str, Any]:
    return {"sizes": grouping.group_sizes(inputs["num_clients"], inputs["K"])}


@register
def fedsdd_aggregate(inputs: Inputs) -> dict[str, Any]:
    models, previous = one_tensor(inputs["client_w"]), one_tensor(inputs["prev_global"])
    counts = counts_of(inputs, models)
    grouping.group_sizes(len(models), len(previous))
    made = by_model(
        models, counts, [str(group) for group in inputs["group"]], {str(k): old for k, old in enumerate(previous)}
    )
    return {"w": [state["w"] for state in made.values()]}


@register
def fedsdd_ensemble(inputs: Inputs) -> dict[str, Any]:
    """Every model of every round is a teacher; `weights` are of each of them, in this order."""
    name = "logits" if inputs.get("logits") is not None else "probs"
    rounds = [arrays.floats(f"{name} of a round", floats(each), 3) for each in inputs[name]]
    logits = outputs({name: [model.tolist() for of_a_round in rounds for model in of_a_round]})
    made = combined(parts.CombineLogits(), logits, given_rows(inputs, logits))
    return {"target": softened(made, number(inputs, "temperature", 4.0)), "members": len(logits)}


# ------------------------------------------------------------------------------------------------------ other baselines
@register
def ds_fl_era(inputs: Inputs) -> dict[str, Any]:
    given = outputs({"probs": inputs["probs"]} if inputs.get("probs") is not None else inputs)
    era, rows = parts.CombineEra(temperature=number(inputs, "temperature", 0.1)), given_rows(inputs, given)
    mean, target = (measures.softmax(combined(choice, given, rows)) for choice in (parts.CombineProbs(), era))
    return {"mean": mean, "target": target}


@register
def moon_loss(inputs: Inputs) -> dict[str, Any]:
    """Without a previous model the global one takes its place, as on a device that takes part for the first time."""
    z, z_global = (tensor(inputs[name]) for name in ("z", "z_glob"))
    z_previous = z_global[None] if inputs.get("z_prev") is None else tensor(inputs["z_prev"])
    tau = number(inputs, "tau", number(inputs, "temperature", 0.5))
    return {"loss": moon.contrast(z, z_global, z_previous, number(inputs, "mu", 1.0), tau)}


@register
def feduv_reg(inputs: Inputs) -> dict[str, Any]:
    names = {"std_coeff": "std_weight", "unif_coeff": "unif_weight"}
    both = [(name, ours) for theirs, ours in names.items() for name in (ours, theirs)]
    options = {ours: floats(inputs[name]) for name, ours in both if name in inputs}
    result = feduv.spread(tensor(inputs["logits"]), tensor(inputs["features"]), **options)
    return {"std": result.std, "unif": result.unif, "loss": result.loss, "gamma": result.gamma}


@register
def fedtgp_margin(inputs: Inputs) -> dict[str, Any]:
    means = [{int(label): floats(mean) for label, mean in client.items()} for client in inputs["client_protos"]]
    options = {"threshold": floats(inputs["threshold"])} if "threshold" in inputs else {}
    result = fedtgp.margin(means, inputs["num_classes"], **options)
    return {"gap": result.gap, "margin": result.margin}
