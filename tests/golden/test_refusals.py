"""Edges of every rule, through the door of the golden vectors: stable codes, and results where input only looks bad.

Each case starts from a vector of the rule and changes some of its inputs.
"""

import copy
import importlib.util
import inspect
import json
import math
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


def _adapter() -> Any:
    spec = importlib.util.spec_from_file_location("golden_adapter_of_refusals", HERE / "adapter.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


adapter = _adapter()


def inputs_of(vector: str, **changes: Any) -> dict[str, Any]:
    case = json.loads((HERE / "vectors" / f"{vector}.json").read_text())
    return {key: value for key, value in (case["inputs"] | changes).items() if value != "remove"}


def run(vector: str, **changes: Any) -> dict[str, Any]:
    result: dict[str, Any] = adapter.evaluate(vector.split(".")[0], inputs_of(vector, **changes))
    return result


LOGITS = [[["nan", 1.0]], [[2.0, 0.0]]]
RAGGED = [[[1.0, 2.0]], [[1.0]]]
LIST_OF_LOGITS = ("avg_probs.one", "fedbe_target.tie", "feddf_avglogits.one_client", "ds_fl_era.t1")
WEIGHTED = ("gaussian_posterior.one_client", "dirichlet_combination.one_client")


def test_the_door_is_called_evaluate_and_takes_rule_and_inputs() -> None:
    signature = inspect.signature(adapter.evaluate)
    assert [(name, p.annotation) for name, p in signature.parameters.items()] == [("rule", str), ("inputs", dict)]
    assert signature.return_annotation is dict
    assert adapter.NOT_BUILT == {}


@pytest.mark.parametrize("path", sorted((HERE / "vectors").glob("*.json")), ids=lambda path: path.stem)
def test_inputs_are_not_changed_and_results_are_json(path: Path) -> None:
    case = json.loads(path.read_text())
    inputs = copy.deepcopy(case["inputs"])
    json.dumps(adapter.evaluate(case["rule"], inputs), allow_nan=False)
    assert inputs == case["inputs"]


@pytest.mark.parametrize("vector", LIST_OF_LOGITS)
def test_ensembles_refuse_alike(vector: str) -> None:
    assert run(vector, logits=[]) == {"error": "no_participants"}
    assert run(vector, logits=RAGGED) == {"error": "schema_mismatch"}
    assert run(vector, logits=[[1.0, 2.0]]) == {"error": "schema_mismatch"}
    assert run(vector, logits=LOGITS) == {"error": "non_finite"}


@pytest.mark.parametrize("vector", WEIGHTED)
def test_weighted_rules_refuse_alike(vector: str) -> None:
    gamma = {"gamma": [1.0, 1.0]} if vector.startswith("dirichlet") else {}
    ws = [[1.0], [2.0]]
    assert run(vector, ws=ws, n=[0, 0], **gamma) == {"error": "no_positive_weight"}
    assert run(vector, ws=ws, n=[1, -1], **gamma) == {"error": "bad_weight"}
    assert run(vector, ws=ws, n=[1, "nan"], **gamma) == {"error": "bad_weight"}
    assert run(vector, ws=[[1.0], [1.0, 2.0]], n=[1, 1], **gamma) == {"error": "schema_mismatch"}
    assert run(vector, ws=ws, n=[1], **gamma) == {"error": "schema_mismatch"}
    assert run(vector, ws=[[1.0], ["inf"]], n=[1, 1], **gamma) == {"error": "non_finite"}
    assert "error" not in run(vector, ws=[[1.0], ["inf"]], n=[1, 0], **gamma)


@pytest.mark.parametrize(
    ("vector", "changes", "code"),
    [
        ("binarize.linear", {"w": 1.0}, "schema_mismatch"),
        ("binarize.linear", {"w": [["nan"]]}, "non_finite"),
        ("binarize.linear", {"memory": [[0.0]]}, "schema_mismatch"),
        ("binarize.linear", {"w": [[1.0, 2.0], [1.0]]}, "schema_mismatch"),
        ("cosine_lr.s0", {"total": 0}, "no_steps"),
        ("cosine_lr.s0", {"steps": [10001]}, "out_of_range"),
        ("cosine_lr.s0", {"steps": [-1]}, "out_of_range"),
        ("cosine_lr.s0", {"lr0": "nan"}, "bad_option"),
        ("dirichlet_combination.basic", {"gamma": [1, 1, 1, -1]}, "bad_weight"),
        ("dirichlet_combination.basic", {"gamma": [0, 0, 0, 0]}, "no_positive_weight"),
        ("dirichlet_combination.basic", {"gamma": [1.0]}, "schema_mismatch"),
        ("drop_worst.s0", {"val_acc": []}, "no_participants"),
        ("drop_worst.s0", {"val_acc": [0.5, "nan"]}, "non_finite"),
        ("drop_worst.s0", {"val_acc": [45.0]}, "out_of_range"),
        ("drop_worst.s0", {"num_classes": 0}, "too_few_classes"),
        ("ds_fl_era.probs", {"probs": []}, "no_participants"),
        ("ds_fl_era.probs", {"probs": [[[1.5, -0.5]]]}, "out_of_range"),
        ("ds_fl_era.probs", {"temperature": 0.0}, "bad_option"),
        ("early_stop.s0", {"total": 0}, "no_steps"),
        ("early_stop.s0", {"eval_every": 0}, "bad_option"),
        ("early_stop.s0", {"patience": 0}, "bad_option"),
        ("early_stop.s0", {"val_acc": [0.5, "nan"]}, "non_finite"),
        ("fedavgm_step.first_round", {"beta": 1.0}, "bad_option"),
        ("fedavgm_step.first_round", {"beta": "nan"}, "bad_option"),
        ("fedavgm_step.first_round", {"server_lr": -1.0}, "bad_option"),
        ("fedavgm_step.first_round", {"momentum_form": "heavy"}, "bad_option"),
        ("fedavgm_step.first_round", {"avg": {"bn.bias": [0.0, 0.0]}}, "schema_mismatch"),
        ("fedavgm_step.first_round", {"velocity": {"bn.bias": [0.0, 0.0]}}, "schema_mismatch"),
        ("fedavgm_step.first_round", {"prev": {"w": ["nan"]}, "avg": {"w": [1.0]}}, "non_finite"),
        ("fedbe_target.basic", {"sharpen_power": 0.0}, "bad_option"),
        ("feddf_avglogits.basic", {"temperature": -1.0}, "bad_option"),
        ("feddf_avglogits.basic", {"temperature": "inf"}, "bad_option"),
        ("feddisco_weights.kl_counts", {"metric": "chi"}, "bad_option"),
        ("feddisco_weights.kl_counts", {"class_counts": [[1], [1], [1], [-1]]}, "bad_counts"),
        ("feddisco_weights.kl_counts", {"class_counts": [[1], [1], [1], [0]]}, "bad_counts"),
        ("feddisco_weights.kl_counts", {"class_counts": [[1]]}, "schema_mismatch"),
        ("feddisco_weights.kl_counts", {"n": [0, 0, 0, 0]}, "no_positive_weight"),
        ("feddisco_weights.kl_counts", {"n": [], "class_counts": []}, "no_participants"),
        ("feddisco_weights.given_d", {"d": [0.5, 0.5]}, "schema_mismatch"),
        ("feddisco_weights.given_d", {"d": [0.5, 0.3, "nan"]}, "non_finite"),
        ("feddisco_weights.given_d", {"n": [-1, 1, 1]}, "bad_weight"),
        ("fedet_representation.mean", {"h": []}, "no_participants"),
        ("fedet_representation.mean", {"h": [[1.0], [1.0, 2.0]]}, "schema_mismatch"),
        ("fedet_representation.mean", {"h": [["inf"]]}, "non_finite"),
        ("fedet_small_average.three_types", {"model_ids": [0, 1, 0, 3]}, "out_of_range"),
        ("fedet_small_average.three_types", {"model_ids": [0, 1, 0]}, "schema_mismatch"),
        ("fedet_small_average.three_types", {"model_ids": [0, 1, 1, 2]}, "schema_mismatch"),
        ("fedet_targets.unanimous", {"logits": []}, "no_participants"),
        ("fedet_targets.unanimous", {"logits": [[["nan", 0.0, 0.0]]]}, "non_finite"),
        ("fedet_targets.unanimous", {"server_logits": [["nan", 0.0, 0.0]]}, "non_finite"),
        ("fedet_targets.unanimous", {"server_logits": [[0.0, 0.0]]}, "schema_mismatch"),
        ("fedet_targets.unanimous", {"lam": -0.1}, "bad_option"),
        ("fedgo_pseudo_label.prob", {"logits": [[[1.0]]]}, "schema_mismatch"),
        ("fedgo_pseudo_label.prob", {"link": "tanh"}, "bad_option"),
        ("fedgo_pseudo_label.prob", {"D": [[2.0, 0.0], [0.0, 0.0], [0.0, 0.0]]}, "out_of_range"),
        ("fedprox_term.mu_1.0", {"w": [1.0]}, "schema_mismatch"),
        ("fedprox_term.mu_1.0", {"w": ["nan"] * 7}, "non_finite"),
        ("fedprox_term.mu_1.0", {"mu": -1.0}, "bad_option"),
        ("fedsdd_aggregate.k2", {"group": [0, 1, 0, 1, 2]}, "out_of_range"),
        ("fedsdd_aggregate.k2", {"group": [0, 1, 0, 1, -1]}, "out_of_range"),
        ("fedsdd_aggregate.k2", {"group": [0]}, "schema_mismatch"),
        ("fedsdd_aggregate.k2", {"n": [1, 1, 1, 1, -1]}, "bad_weight"),
        ("fedsdd_aggregate.k2", {"prev_global": [[0.0], [0.0]]}, "schema_mismatch"),
        ("fedsdd_ensemble.t1", {"logits": []}, "no_participants"),
        ("fedsdd_ensemble.t1", {"temperature": 0.0}, "bad_option"),
        ("fedsdd_ensemble.t1", {"logits": [[[[1.0, 2.0]]], [[[1.0]]]]}, "schema_mismatch"),
        ("fedsdd_group_sizes.m8_k4", {"K": 0}, "bad_option"),
        ("fedsdd_group_sizes.m8_k4", {"num_clients": -1}, "bad_counts"),
        ("fedtgp_margin.basic", {"client_protos": []}, "no_participants"),
        ("fedtgp_margin.basic", {"client_protos": [{"0": [1.0]}]}, "too_few_classes"),
        ("fedtgp_margin.basic", {"num_classes": 2}, "out_of_range"),
        ("fedtgp_margin.basic", {"client_protos": [{"0": [1.0], "1": ["nan"]}]}, "non_finite"),
        ("fedtgp_margin.basic", {"client_protos": [{"0": [1.0], "1": [1.0, 2.0]}]}, "schema_mismatch"),
        ("feduv_reg.basic", {"features": [[1.0]]}, "schema_mismatch"),
        ("feduv_reg.batch_one", {"features": [["nan"]]}, "non_finite"),
        ("feduv_reg.batch_one", {"std_coeff": -1.0}, "bad_option"),
        ("gaussian_sample.scale_1", {"scale": -1.0}, "bad_option"),
        ("gaussian_sample.running_var_floor", {"var": [-1.0, 0.0, 0.0]}, "bad_variance"),
        ("gaussian_sample.running_var_floor", {"eps": [1.0]}, "schema_mismatch"),
        ("gaussian_sample.running_var_floor", {"mean": ["inf", 0.0, 0.0]}, "non_finite"),
        ("kd_kl.t1", {"temperature": 0.0}, "bad_option"),
        ("kd_kl.t1", {"teacher_logits": [[1.0]]}, "schema_mismatch"),
        ("kd_kl.t1", {"teacher_logits": [["nan"] * 5] * 4}, "non_finite"),
        ("moon_loss.basic", {"tau": 0.0}, "bad_option"),
        ("moon_loss.basic", {"z_glob": [[1.0]]}, "schema_mismatch"),
        ("moon_loss.basic", {"z": [["nan"] * 6] * 4}, "non_finite"),
        ("scaffold_client.option2", {"steps": 0}, "no_steps"),
        ("scaffold_client.option2", {"lr": 0.0}, "bad_option"),
        ("scaffold_client.option2", {"option": 3}, "bad_option"),
        ("scaffold_client.option1", {"grad_at_x": "remove"}, "bad_option"),
        ("scaffold_client.option2", {"y": [1.0]}, "schema_mismatch"),
        ("scaffold_client.option2", {"y": ["nan"] * 5}, "non_finite"),
        ("scaffold_server.full", {"delta_y": [], "delta_c": []}, "no_participants"),
        ("scaffold_server.full", {"num_clients_total": 2}, "bad_counts"),
        ("scaffold_server.full", {"delta_y": [[1.0], [1.0], [1.0]]}, "schema_mismatch"),
        ("scaffold_server.full", {"server_lr": "nan"}, "bad_option"),
        ("scaffold_server.sample_weighted", {"n": [0, 0, 0]}, "no_positive_weight"),
        ("scaffold_server.sample_weighted", {"n": [1, 1, "inf"]}, "bad_weight"),
        ("soft_cross_entropy.basic", {"target": [[1.0]]}, "schema_mismatch"),
        ("soft_cross_entropy.basic", {"target": [["nan"] * 5] * 4}, "non_finite"),
        ("soft_cross_entropy.basic", {"target": [[-0.5, 1.5, 0, 0, 0]] * 4}, "out_of_range"),
        ("swa_average.m3", {"snapshots": []}, "nothing_collected"),
        ("swa_average.m3", {"snapshots": [[1.0], [1.0, 2.0]]}, "schema_mismatch"),
        ("swa_average.m3", {"snapshots": [["nan"]]}, "non_finite"),
        ("swa_schedule.s1", {"cycle": 0}, "bad_option"),
        ("swa_schedule.s1", {"total": 0}, "no_steps"),
        ("weighted_average.bn_model", {"states": [{"t": [1.0]}, {"t": [1.0, 2.0]}], "n": [1, 1]}, "schema_mismatch"),
        ("weighted_average.bn_model", {"n": [1]}, "schema_mismatch"),
        ("weighted_average.bn_model", {"n": [1, 1, "inf"]}, "bad_weight"),
        ("weighted_pseudo_label.basic", {"weights": [[-1.0]]}, "schema_mismatch"),
        ("weighted_pseudo_label.zero_weight_nan", {"weights": [[-1.0], [2.0]]}, "bad_weight"),
        ("weighted_pseudo_label.zero_weight_nan", {"weights": [[0.0], [0.0]]}, "no_positive_weight"),
        ("weighted_pseudo_label.zero_weight_nan", {"weights": [[1.0], [1.0]]}, "non_finite"),
        ("weights_dafkd.basic", {"D": [[1.5]]}, "out_of_range"),
        ("weights_dafkd.basic", {"D": [["nan"]]}, "non_finite"),
        ("weights_dafkd.basic", {"D": []}, "no_participants"),
        ("weights_dafkd.basic", {"D": [[0.5, 0.5], [0.5]]}, "schema_mismatch"),
        ("weights_entropy.tau1", {"tau": 0.0}, "bad_option"),
        ("weights_entropy.tau1", {"logits": LOGITS}, "non_finite"),
        ("weights_fedgo.prob", {"n": [1, 2]}, "schema_mismatch"),
        ("weights_fedgo.prob", {"n": [1, 2, 3, -4]}, "bad_weight"),
        ("weights_uniform.k1_b3", {"K": -1}, "no_participants"),
        ("weights_variance.probs", {"space": "cube"}, "bad_option"),
        ("weights_variance.probs", {"logits": RAGGED}, "schema_mismatch"),
    ],
)
def test_refused(vector: str, changes: dict[str, Any], code: str) -> None:
    assert run(vector, **changes) == {"error": code}


@pytest.mark.parametrize(
    ("vector", "changes", "expected"),
    [
        ("fedsdd_group_sizes.m8_k4", {"num_clients": 0}, {"sizes": [0, 0, 0, 0]}),
        ("ds_fl_era.probs", {"temperature": 1e-300}, {"target": [[0.5, 0.5, 0.0]]}),
        ("gaussian_sample.scale_1", {"scale": 0.0}, {"w": inputs_of("gaussian_sample.scale_1")["mean"]}),
        ("weights_uniform.k1_b3", {"B": 0}, {"weights": [[]]}),
        ("weights_entropy.tau1", {"logits": [[[9.0, 0.0]], [[1.0, 0.0]]], "tau": 1e-300}, {"weights": [[1.0], [0.0]]}),
        ("fedtgp_margin.basic", {"client_protos": [{"0": [1.0], "1": [1.0]}]}, {"gap": [0.0] * 3, "margin": 0.0}),
        ("feduv_reg.batch_one", {"logits": [[1.0]], "features": [[2.0]]}, {"loss": 0.0, "gamma": 0.0}),
        ("feddisco_weights.given_d", {"d": [9.0, 9.0, 9.0], "n": [1, 1, 2]}, {"weights": [0.25, 0.25, 0.5]}),
        ("moon_loss.basic", {"z": [[0.0]], "z_glob": [[0.0]], "z_prev": [[[0.0]]]}, {"loss": math.log(2)}),
        (
            "scaffold_server.full",
            {"n": None},
            {"c": [-0.609375, 0.71875, 0.13541666666666669, 0.125, 0.40104166666666663]},
        ),
        ("binarize.linear", {"w": [[0.0, -0.0]]}, {"binary": [[0.0, 0.0]], "scale": [0.0]}),
        ("fedet_targets.unanimous", {"logits": [[[1.0, 1.0, 1.0]]] * 2}, {"label": [0], "div_mask": [[0], [0]]}),
    ],
)
def test_edges_that_have_a_result(vector: str, changes: dict[str, Any], expected: dict[str, Any]) -> None:
    got = run(vector, **changes)
    assert "error" not in got
    for key, value in expected.items():
        assert got[key] == value if isinstance(value, list) else got[key] == pytest.approx(value)


def test_exponential_form_of_fedavgm() -> None:
    """v = beta v + (1 - beta) (prev - avg), from the velocity of the vector; theta = prev - v."""
    given = {"prev": {"w": [3.0]}, "avg": {"w": [1.0]}, "velocity": {"w": [4.0]}, "meta": None}
    got = run("fedavgm_step.with_velocity", momentum_form="ema", beta=0.75, **given)
    assert got == {"state": {"w": [-0.5]}, "velocity": {"w": [3.5]}}


def test_tensors_of_16_bits() -> None:
    for dtype in ("float16", "bfloat16"):
        meta = {"w": {"dtype": dtype, "role": "param"}}
        got = adapter.evaluate("weighted_average", {"states": [{"w": [1.0]}, {"w": [2.0]}], "n": [1, 1], "meta": meta})
        assert got["state"] == {"w": [1.5]}
        step = {"prev": {"w": [3.0]}, "avg": {"w": [1.0]}, "velocity": None, "beta": 0.9, "meta": meta}
        assert adapter.evaluate("fedavgm_step", step)["state"] == {"w": [1.0]}


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_a_teacher_may_be_given_by_its_probabilities(temperature: float) -> None:
    teacher = inputs_of("kd_kl.t1")["teacher_logits"]
    probs = [[math.exp(z) / sum(map(math.exp, row)) for z in row] for row in teacher]
    got = run("kd_kl.t1", teacher_logits="remove", teacher_probs=probs, temperature=temperature)
    expected = run("kd_kl.t1", temperature=temperature)
    assert got["loss"] == pytest.approx(expected["loss"])
    for mine, theirs in zip(got["grad"], expected["grad"], strict=True):
        assert mine == pytest.approx(theirs)
    assert run("kd_kl.t1", teacher_logits="remove", teacher_probs=[[1.5, 0, 0, 0, 0]] * 4) == {"error": "out_of_range"}


def test_fed_et_weighs_by_the_variance_of_logits_where_told() -> None:
    logits = inputs_of("fedet_targets.basic")["logits"]
    got = {space: run("fedet_targets.basic", space=space)["alpha"] for space in ("probs", "logits")}
    assert got["probs"] != got["logits"]
    assert got["logits"] == run("weights_variance.logits", logits=logits, space="logits")["weights"]
    assert run("fedet_targets.basic", space="cube") == {"error": "bad_option"}


def test_who_has_no_samples_is_not_looked_at() -> None:
    nothing, moves = ["nan", "nan"], [2.0, 4.0]
    given = {"x": [1.0, 1.0], "c": [0.0, 0.0], "delta_y": [moves, nothing], "delta_c": [[1.0, 1.0], nothing]}
    got = run("scaffold_server.sample_weighted", **given, n=[3, 0], num_clients_total=4, server_lr=1.0)
    assert got == {"x": [3.0, 5.0], "c": [0.25, 0.25]}
    odds = run("fedgo_pseudo_label.one_client", logits=[[nothing], [[1.0, 1.0]]], n=[0, 2], a=[["nan"], [0.0]])
    assert odds["weights"] == [[0.0], [1.0]]
    assert odds["target"] == [pytest.approx([0.5, 0.5])]


@pytest.mark.parametrize("rule", ["avg_probs.basic", "feddf_avglogits.basic", "fedbe_target.basic", "ds_fl_era.logits"])
def test_every_combination_takes_weights(rule: str) -> None:
    logits = inputs_of(rule)["logits"]
    weights = [[float(index == 1)] * len(logits[0]) for index in range(len(logits))]
    got, alone = run(rule, weights=weights), run(rule, logits=logits[1:2])
    for mine, theirs in zip(got["target"], alone["target"], strict=True):
        assert mine == pytest.approx(theirs)
    assert run(rule, weights=[[-1.0] * len(logits[0])] * len(logits)) == {"error": "bad_weight"}


def test_options_that_vectors_leave_out() -> None:
    scores = [[math.log(d / (1 - d)) for d in row] for row in inputs_of("weights_dafkd.basic")["D"]]
    for mine, theirs in zip(
        run("weights_dafkd.basic", D="remove", a=scores)["weights"], run("weights_dafkd.basic")["weights"], strict=True
    ):
        assert mine == pytest.approx(theirs)
    assert run("fedet_representation.mean", h=[[1.0], [5.0]], n=[3, 1]) == {"h_bar": [2.0]}
    previous = {"0": [0.0]}
    small = run("fedet_small_average.nobody", models=[[1.0], [5.0]], model_ids=[0, 0], previous=previous, n=[3, 1])
    assert small == {"models": {"0": [2.0]}}
    uniform = run("scaffold_server.sample_weighted", n_weighted=False)
    assert uniform == run("scaffold_server.sample_weighted", n="remove")
    assert run("kd_kl.t4", kd_scale_t2=False)["loss"] == pytest.approx(run("kd_kl.t4")["loss"] / 16)


def probabilities(logits: list[Any]) -> list[Any]:
    """Return softmax of nested rows of logits."""
    if isinstance(logits[0], list):
        return [probabilities(each) for each in logits]
    powers = [math.exp(z - max(logits)) for z in logits]
    return [each / sum(powers) for each in powers]


@pytest.mark.parametrize(
    "vector",
    [
        "weighted_pseudo_label.basic",
        "fedgo_pseudo_label.double_sigmoid",
        "fedsdd_ensemble.r1_k4",
        "fedet_targets.basic",
    ],
)
def test_teachers_may_be_given_by_their_probabilities(vector: str) -> None:
    logits = inputs_of(vector)["logits"]
    got, expected = run(vector, logits="remove", probs=probabilities(logits)), run(vector)
    name = "consensus" if vector.startswith("fedet") else "target"
    for mine, theirs in zip(got[name], expected[name], strict=True):
        assert mine == pytest.approx(theirs, rel=1e-6), "weights of logits and of log probabilities are the same"


def test_a_soft_target_may_be_a_teachers_logits_or_probabilities() -> None:
    logits = inputs_of("kd_kl.t1")["teacher_logits"]
    student = {"student_logits": inputs_of("kd_kl.t1")["student_logits"], "target": "remove"}
    by_logits = run("soft_cross_entropy.basic", **student, teacher_logits=logits)
    by_probs = run("soft_cross_entropy.basic", **student, teacher_probs=probabilities(logits))
    assert by_logits["loss"] == pytest.approx(by_probs["loss"])


def test_without_samples_all_count_alike() -> None:
    states = {"states": [{"w": [1.0]}, {"w": [5.0]}], "n": "remove", "meta": "remove"}
    assert run("weighted_average.one_client", **states)["state"] == {"w": [3.0]}
    alike = run("gaussian_posterior.weighted", ws=[[1.0], [5.0]], n="remove")
    assert alike == {"mean": [3.0], "var": [4.0]}
    groups = run("fedsdd_aggregate.k2", client_w=[[1.0], [5.0]], group=[0, 0], n="remove", prev_global=[[0.0], [7.0]])
    assert groups == {"w": [[3.0], [7.0]]}


def test_defaults_are_the_products() -> None:
    term = run("fedprox_term.mu_1.0", w=[3.0], w0=[1.0], grad="remove", mu="remove")
    assert term == {"penalty": pytest.approx(0.001 / 2 * 4), "grad": [pytest.approx(0.002)]}
    assert run("fedet_targets.lambda_0.5", lam="remove", **{"lambda": 0.5}) == run("fedet_targets.lambda_0.5")
    moon = inputs_of("moon_loss.basic")
    assert run("moon_loss.basic", z_prev="remove") == run("moon_loss.basic", z_prev=[moon["z_glob"]])


def test_dafkds_weights_through_fedgos_link() -> None:
    """D = sigmoid(sigmoid(a)), within 0.5 and 0.731."""
    scores = [[-30.0, 0.0, 2.0], [1.0, 5.0, 40.0]]
    doubled = [[1 / (1 + math.exp(-1 / (1 + math.exp(-a)))) for a in row] for row in scores]
    got = run("weights_dafkd.basic", D="remove", a=scores, link="double_sigmoid")["weights"]
    for mine, theirs in zip(got, run("weights_dafkd.basic", D=doubled)["weights"], strict=True):
        assert mine == pytest.approx(theirs)


def test_every_model_of_every_round_may_be_weighed() -> None:
    logits = inputs_of("fedsdd_ensemble.r1_k4")["logits"]
    weights = [[float(index == 2)] * len(logits[0][0]) for index in range(4)]
    got = run("fedsdd_ensemble.r1_k4", weights=weights)["target"]
    alone = run("fedsdd_ensemble.r1_k4", logits=[[logits[0][2]]])["target"]
    for mine, theirs in zip(got, alone, strict=True):
        assert mine == pytest.approx(theirs)
