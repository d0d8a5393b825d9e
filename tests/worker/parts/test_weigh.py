"""Weights of teachers: values worked by hand, degenerate ensembles, and what holds for all of them."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from contract.recipes import parts
from worker.parts import weigh
from worker.parts.errors import PartError

E = float(np.e)
LOGITS = arrays(np.float64, (3, 4, 5), elements=st.floats(-30, 30))
SCORES = arrays(np.float64, (3, 4), elements=st.floats(-30, 30))
COUNTS = [5.0, 1.0, 9.0]

RULES: dict[str, Callable[[np.ndarray, np.ndarray, list[float]], np.ndarray]] = {
    "uniform": lambda logits, scores, n: weigh.uniform(len(logits), 4),
    "samples": lambda logits, scores, n: weigh.samples(n, 4),
    "variance": lambda logits, scores, n: weigh.variance(logits),
    "variance-logits": lambda logits, scores, n: weigh.variance(logits, "logits"),
    "entropy": lambda logits, scores, n: weigh.entropy_softmax(logits, 0.7),
    "dafkd": lambda logits, scores, n: weigh.dafkd(1 / (1 + np.exp(-scores))),
    "odds-double": lambda logits, scores, n: weigh.odds(n, scores, "double_sigmoid"),
    "odds": lambda logits, scores, n: weigh.odds(n, scores, "sigmoid"),
}
every_rule = pytest.mark.parametrize("rule", RULES)


@every_rule
@given(logits=LOGITS, scores=SCORES)
def test_weights_are_a_distribution_over_teachers(rule: str, logits: np.ndarray, scores: np.ndarray) -> None:
    weights = RULES[rule](logits, scores, COUNTS)
    assert weights.shape == (3, 4) and weights.dtype == np.float64
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(axis=0), 1, rtol=1e-12)


@every_rule
@given(logits=LOGITS, scores=SCORES, order=st.permutations([0, 1, 2]))
def test_weights_follow_their_clients(rule: str, logits: np.ndarray, scores: np.ndarray, order: list[int]) -> None:
    weights = RULES[rule](logits, scores, COUNTS)
    turned = RULES[rule](logits[order], scores[order], [COUNTS[i] for i in order])
    np.testing.assert_allclose(turned, weights[order], rtol=1e-9, atol=1e-300)


@every_rule
@given(logits=LOGITS, scores=SCORES, shift=st.floats(-1000, 1000))
def test_a_constant_added_to_logits_changes_nothing(
    rule: str, logits: np.ndarray, scores: np.ndarray, shift: float
) -> None:
    whole = np.round(logits * 8) / 8  # so that adding the shift rounds nothing that matters
    moved = RULES[rule](whole + np.round(shift), scores, COUNTS)
    np.testing.assert_allclose(moved, RULES[rule](whole, scores, COUNTS), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("rule", ["samples", "odds", "odds-double"])
@given(scores=SCORES, factor=st.floats(1e-3, 1e3))
def test_scale_of_sample_counts_does_not_matter(rule: str, scores: np.ndarray, factor: float) -> None:
    logits = np.zeros((3, 4, 5))
    scaled = RULES[rule](logits, scores, [n * factor for n in COUNTS])
    np.testing.assert_allclose(scaled, RULES[rule](logits, scores, COUNTS), rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("rule", ["samples", "odds", "odds-double"])
@given(scores=SCORES)
def test_a_client_twice_is_one_with_twice_the_samples(rule: str, scores: np.ndarray) -> None:
    logits, twice = np.zeros((4, 4, 5)), np.concatenate([scores[:1], scores])
    apart = RULES[rule](logits, twice, [5, *COUNTS])
    together = RULES[rule](logits[1:], scores, [10, *COUNTS[1:]])
    np.testing.assert_allclose(apart[0] + apart[1], together[0], rtol=1e-9, atol=1e-300)


@every_rule
def test_one_teacher_has_all_the_weight(rule: str) -> None:
    rng = np.random.default_rng(0)
    weights = RULES[rule](rng.normal(size=(1, 4, 5)), rng.normal(size=(1, 4)), [3])
    assert weights.tolist() == [[1.0] * 4]


def test_odds_by_hand() -> None:
    """n = (1, 3); plain odds e^0 = 1 and e^ln2 = 2: weights 1/7 and 6/7."""
    weights = weigh.odds([1, 3], [[0.0], [np.log(2)]], "sigmoid")
    np.testing.assert_allclose(weights[:, 0], [1 / 7, 6 / 7], rtol=1e-12)


def test_odds_of_probabilities_by_hand() -> None:
    """n = (1, 3); D = 1/2 and 3/4: odds 1 and 3, weights 1/10 and 9/10."""
    np.testing.assert_allclose(weigh.odds([1, 3], [[0.5], [0.75]], "prob")[:, 0], [0.1, 0.9], rtol=1e-12)


def test_probabilities_weigh_as_their_scores_do() -> None:
    """D = sigmoid(a) in float32, as a network gives it. 1 - D keeps 7 - a / ln 10 digits of it."""
    scores = np.random.default_rng(2).uniform(-6, 6, (4, 50)).astype(np.float32)
    probabilities = np.float32(1) / (np.float32(1) + np.exp(-scores))
    assert probabilities.dtype == np.float32
    found, expected = weigh.odds([1, 2, 3, 4], probabilities, "prob"), weigh.odds([1, 2, 3, 4], scores, "sigmoid")
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_probabilities_of_exactly_0_and_1_are_clipped() -> None:
    """D = 0, 1/2, 1 in float32: odds 1e-6, 1 and 1e6 up to the clip's own 1e-6."""
    weights = weigh.odds([1, 1, 1], np.float32([[0.0], [0.5], [1.0]]), "prob")[:, 0]
    np.testing.assert_allclose(weights, np.array([1e-6, 1.0, 1e6]) / (1e-6 + 1 + 1e6), rtol=3e-6)
    assert (weigh.odds([1, 1], np.float32([[1.0], [1.0]]), "prob") == 0.5).all()


def test_odds_of_exact_discriminators_are_the_density_ratio() -> None:
    """FedGO Theorem 3.6: with D_k = p_k / (p_k + p_g) the weights are n_k p_k / sum n p."""
    rng = np.random.default_rng(1)
    n, p, fake = rng.integers(1, 500, 4).astype(float), rng.uniform(0.01, 3, (4, 50)), rng.uniform(0.01, 3, 50)
    expected = n[:, None] * p / (n[:, None] * p).sum(axis=0)
    np.testing.assert_allclose(weigh.odds(n, p / (p + fake), "prob"), expected, rtol=1e-9)
    np.testing.assert_allclose(weigh.odds(n, np.log(p / fake), "sigmoid"), expected, rtol=1e-9)


@given(scores=arrays(np.float64, (4, 6), elements=st.floats(-700, 700)))
def test_a_liar_gains_at_most_e(scores: np.ndarray) -> None:
    """FedGO F.8: with equal n one client's share under the double sigmoid is at most e / (e + m - 1)."""
    scores[0] = 700.0
    weights = weigh.odds([7, 7, 7, 7], scores, "double_sigmoid")
    assert (weights[0] <= E / (E + 3) * (1 + 1e-12)).all()
    assert ((weigh.odds_of(scores) >= 1) & (weigh.odds_of(scores) <= E)).all()


def test_saturated_scores_stay_within_the_clip() -> None:
    weights = weigh.odds([1, 1], [[1e9], [-1e9]], "sigmoid")
    assert 0 < weights[1, 0] < 1e-11


def test_a_client_without_samples_is_skipped_whatever_its_scores() -> None:
    weights = weigh.odds([0, 2], [[np.nan], [0.0]], "sigmoid")
    assert weights.tolist() == [[0.0], [1.0]]


def test_variance_by_hand() -> None:
    """p = (3/4, 1/4): variance 1/16; p = (1/2, 1/2): 0. All weight to the first."""
    logits = np.array([[[np.log(3), 0.0]], [[5.0, 5.0]]])
    assert weigh.variance(logits)[:, 0].tolist() == [1.0, 0.0]


def test_flat_teachers_count_alike() -> None:
    assert weigh.variance(np.zeros((4, 2, 3))).tolist() == [[0.25, 0.25]] * 4


def test_entropy_by_hand() -> None:
    """H(1/2, 1/2) = ln 2; a certain teacher has 0: at tau = ln 2 the weights are 1 : e^-1."""
    weights = weigh.entropy_softmax(np.array([[[800.0, 0.0]], [[1.0, 1.0]]]), tau=float(np.log(2)))
    np.testing.assert_allclose(weights[:, 0], [E / (E + 1), 1 / (E + 1)], rtol=1e-12)


def test_a_single_class_makes_teachers_equal() -> None:
    ones = np.random.default_rng(0).normal(size=(2, 3, 1))
    for weights in (weigh.variance(ones), weigh.entropy_softmax(ones)):
        assert weights.tolist() == [[0.5] * 3] * 2


def test_log_probability_does_not_overflow() -> None:
    np.testing.assert_allclose(weigh.log_probability([-1e4, 0.0, 1e4]), [-1e4, -np.log(2), 0.0])


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: weigh.variance(np.full((2, 1, 2), np.nan)), "non_finite"),
        (lambda: weigh.variance(np.zeros((2, 1, 2)), "cubes"), "bad_option"),
        (lambda: weigh.variance(np.zeros((0, 1, 2))), "no_participants"),
        (lambda: weigh.variance(np.zeros((2, 2))), "schema_mismatch"),
        (lambda: weigh.entropy_softmax(np.zeros((2, 1, 2)), 0.0), "bad_option"),
        (lambda: weigh.dafkd([[-0.1], [0.5]]), "out_of_range"),
        (lambda: weigh.odds([1], [[np.inf]]), "non_finite"),
        (lambda: weigh.odds([1, 2], [[0.0]]), "schema_mismatch"),
        (lambda: weigh.odds([0], [[0.0]]), "no_positive_weight"),
        (lambda: weigh.odds([-1], [[0.0]]), "bad_weight"),
        (lambda: weigh.samples([], 3), "no_participants"),
        (lambda: weigh.log_weights(parts.WeighOdds(), 3, np.zeros((1, 2)), None), "bad_option"),
    ],
)
def test_refusals(call: Callable[[], object], code: str) -> None:
    with pytest.raises(PartError) as caught:
        call()
    assert caught.value.code == code


@pytest.mark.parametrize(
    "choice",
    [
        parts.WeighUniform(),
        parts.WeighSamples(),
        parts.WeighVariance(),
        parts.WeighVariance(space="logits"),
        parts.WeighEntropy(tau=2.0),
        parts.WeighDafkd(),
        parts.WeighOdds(),
        parts.WeighOdds(link="sigmoid"),
    ],
    ids=lambda choice: repr(choice),
)
def test_one_teacher_at_a_time_equals_all_at_once(choice: parts.Weigh) -> None:
    rng = np.random.default_rng(2)
    logits, scores = rng.normal(size=(3, 6, 4)), rng.normal(size=(3, 6))
    counts = [4, 9, 2]
    streamed = weigh.normalise(np.stack([weigh.log_weights(choice, counts[k], logits[k], scores[k]) for k in range(3)]))
    whole = {
        "uniform": lambda: weigh.uniform(3, 6),
        "samples": lambda: weigh.samples(counts, 6),
        "variance": lambda: weigh.variance(logits, getattr(choice, "space", "")),
        "entropy": lambda: weigh.entropy_softmax(logits, getattr(choice, "tau", 0)),
        "dafkd": lambda: weigh.dafkd(1 / (1 + np.exp(-scores))),
        "odds": lambda: weigh.odds(counts, scores, getattr(choice, "link", "")),
    }[choice.kind]()
    np.testing.assert_allclose(streamed, whole, rtol=1e-12)
