"""Weights of teachers: values worked by hand, degenerate ensembles, and what holds for all of them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from contract.choices import choices_of
from contract.recipes import parts
from tests.reference import ensembles as slow
from tests.teachers import weights as weighed
from worker.parts import weigh
from worker.parts.errors import PartError

E = float(np.e)
LOGITS = arrays(np.float64, (3, 4, 5), elements=st.floats(-30, 30))
SCORES = arrays(np.float64, (3, 4), elements=st.floats(-30, 30))
COUNTS = [5.0, 1.0, 9.0]

CHOICES: dict[str, parts.Weigh] = {
    "uniform": parts.WeighUniform(),
    "samples": parts.WeighSamples(),
    "variance": parts.WeighVariance(),
    "variance-logits": parts.WeighVariance(space="logits"),
    "entropy": parts.WeighEntropy(tau=0.7),
    "dafkd": parts.WeighDafkd(),
    "dafkd-double": parts.WeighDafkd(link="double_sigmoid"),
    "odds-double": parts.WeighOdds(),
    "odds": parts.WeighOdds(link="sigmoid"),
    "balanced_odds": parts.WeighBalancedOdds(),
    "balanced_odds-sharp": parts.WeighBalancedOdds(sharpness=0.4),
}
SLOW: dict[str, Callable[..., Any]] = {
    "uniform": lambda logits, scores, n: slow.uniform(len(logits), 4),
    "samples": lambda logits, scores, n: slow.by_samples(n, 4),
    "variance": lambda logits, scores, n: slow.by_variance(logits),
    "variance-logits": lambda logits, scores, n: slow.by_variance(logits, "logits"),
    "entropy": lambda logits, scores, n: slow.by_entropy(logits, 0.7),
    "dafkd": lambda logits, scores, n: slow.dafkd([[slow.sigmoid(a) for a in row] for row in scores]),
    "dafkd-double": lambda logits, scores, n: slow.dafkd(
        [[slow.sigmoid(slow.sigmoid(a)) for a in row] for row in scores]
    ),
    "odds-double": lambda logits, scores, n: slow.odds(n, scores),
    "odds": lambda logits, scores, n: slow.odds(n, scores, "sigmoid"),
    "balanced_odds": lambda logits, scores, n: slow.odds(n, scores, "sigmoid"),  # before test_balance.py
    "balanced_odds-sharp": lambda logits, scores, n: slow.odds(n, scores, "sigmoid", power=0.4),
}


def test_every_weighting_is_tried_here() -> None:
    missing = set(choices_of(parts.WeighFactor)) - {type(choice) for choice in CHOICES.values()}
    assert not missing, "these need a row in CHOICES and in SLOW"


def rule(name: str, logits: Any, scores: Any, counts: Any) -> Any:
    return weighed(CHOICES[name], counts, logits, scores)


def odds(counts: Any, scores: Any, link: Any = "double_sigmoid") -> Any:
    return weighed(parts.WeighOdds(link=link), counts, scores=np.asarray(scores))


every_rule = pytest.mark.parametrize("name", CHOICES)


@every_rule
@given(logits=LOGITS, scores=SCORES)
def test_weights_are_a_distribution_over_teachers(name: str, logits: np.ndarray, scores: np.ndarray) -> None:
    weights = rule(name, logits, scores, COUNTS)
    assert weights.shape == (3, 4) and weights.dtype == np.float64
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(axis=0), 1, rtol=1e-12)


@every_rule
@given(logits=LOGITS, scores=SCORES)
def test_weights_are_the_slow_ones(name: str, logits: np.ndarray, scores: np.ndarray) -> None:
    scores = scores / 3  # 1 - D keeps few digits of a certain D
    logits = np.round(logits, 3)  # the square of 1e-200 is 0
    expected = SLOW[name](logits, scores, COUNTS)
    np.testing.assert_allclose(rule(name, logits, scores, COUNTS), expected, rtol=1e-6, atol=1e-9)


@every_rule
@given(logits=LOGITS, scores=SCORES, order=st.permutations([0, 1, 2]))
def test_weights_follow_their_clients(name: str, logits: np.ndarray, scores: np.ndarray, order: list[int]) -> None:
    weights = rule(name, logits, scores, COUNTS)
    turned = rule(name, logits[order], scores[order], [COUNTS[i] for i in order])
    np.testing.assert_allclose(turned, weights[order], rtol=1e-9, atol=1e-300)


@every_rule
@given(logits=LOGITS, scores=SCORES, shift=st.floats(-1000, 1000))
def test_a_constant_added_to_logits_changes_nothing(
    name: str, logits: np.ndarray, scores: np.ndarray, shift: float
) -> None:
    whole = np.round(logits * 8) / 8  # so that adding the shift rounds nothing that matters
    moved = rule(name, whole + np.round(shift), scores, COUNTS)
    np.testing.assert_allclose(moved, rule(name, whole, scores, COUNTS), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["samples", "odds", "odds-double"])
@given(scores=SCORES, factor=st.floats(1e-3, 1e3))
def test_scale_of_sample_counts_does_not_matter(name: str, scores: np.ndarray, factor: float) -> None:
    logits = np.zeros((3, 4, 5))
    scaled = rule(name, logits, scores, [n * factor for n in COUNTS])
    np.testing.assert_allclose(scaled, rule(name, logits, scores, COUNTS), rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("name", ["samples", "odds", "odds-double"])
@given(scores=SCORES)
def test_a_client_twice_is_one_with_twice_the_samples(name: str, scores: np.ndarray) -> None:
    logits, twice = np.zeros((4, 4, 5)), np.concatenate([scores[:1], scores])
    apart = rule(name, logits, twice, [5, *COUNTS])
    together = rule(name, logits[1:], scores, [10, *COUNTS[1:]])
    np.testing.assert_allclose(apart[0] + apart[1], together[0], rtol=1e-9, atol=1e-300)


@every_rule
def test_one_teacher_has_all_the_weight(name: str) -> None:
    rng = np.random.default_rng(0)
    weights = rule(name, rng.normal(size=(1, 4, 5)), rng.normal(size=(1, 4)), [3])
    assert weights.tolist() == [[1.0] * 4]


def test_odds_by_hand() -> None:
    """n = (1, 3); plain odds e^0 = 1 and e^ln2 = 2: weights 1/7 and 6/7."""
    weights = odds([1, 3], [[0.0], [np.log(2)]], "sigmoid")
    np.testing.assert_allclose(weights[:, 0], [1 / 7, 6 / 7], rtol=1e-12)


def test_odds_of_probabilities_by_hand() -> None:
    """n = (1, 3); D = 1/2 and 3/4: odds 1 and 3, weights 1/10 and 9/10."""
    np.testing.assert_allclose(odds([1, 3], [[0.5], [0.75]], "prob")[:, 0], [0.1, 0.9], rtol=1e-12)


def test_probabilities_weigh_as_their_scores_do() -> None:
    """D = sigmoid(a) in float32, as a network gives it. 1 - D keeps 7 - a / ln 10 digits of it."""
    scores = np.random.default_rng(2).uniform(-6, 6, (4, 50)).astype(np.float32)
    probabilities = np.float32(1) / (np.float32(1) + np.exp(-scores))
    assert probabilities.dtype == np.float32
    found, expected = odds([1, 2, 3, 4], probabilities, "prob"), odds([1, 2, 3, 4], scores, "sigmoid")
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_probabilities_of_exactly_0_and_1_are_clipped() -> None:
    """D = 0, 1/2, 1 in float32: odds 1e-6, 1 and 1e6 up to the clip's own 1e-6."""
    weights = odds([1, 1, 1], np.array([[0.0], [0.5], [1.0]], np.float32), "prob")[:, 0]
    np.testing.assert_allclose(weights, np.array([1e-6, 1.0, 1e6]) / (1e-6 + 1 + 1e6), rtol=3e-6)
    assert (odds([1, 1], np.array([[1.0], [1.0]], np.float32), "prob") == 0.5).all()


def test_odds_of_exact_discriminators_are_the_density_ratio() -> None:
    """FedGO Theorem 3.6: with D_k = p_k / (p_k + p_g) the weights are n_k p_k / sum n p."""
    rng = np.random.default_rng(1)
    n, p, fake = rng.integers(1, 500, 4).astype(float), rng.uniform(0.01, 3, (4, 50)), rng.uniform(0.01, 3, 50)
    expected = n[:, None] * p / (n[:, None] * p).sum(axis=0)
    np.testing.assert_allclose(odds(n, p / (p + fake), "prob"), expected, rtol=1e-9)
    np.testing.assert_allclose(odds(n, np.log(p / fake), "sigmoid"), expected, rtol=1e-9)


@given(scores=arrays(np.float64, (4, 6), elements=st.floats(-700, 700)))
def test_a_liar_gains_at_most_e(scores: np.ndarray) -> None:
    """FedGO F.8: with equal n one client's share under the double sigmoid is at most e / (e + m - 1)."""
    scores[0] = 700.0
    weights = odds([7, 7, 7, 7], scores)
    assert (weights[0] <= E / (E + 3) * (1 + 1e-12)).all()
    phi = np.exp(weigh.log_odds(scores))
    assert ((phi >= 1) & (phi <= E)).all()


def test_saturated_scores_stay_within_the_clip() -> None:
    weights = odds([1, 1], [[1e9], [-1e9]], "sigmoid")
    assert 0 < weights[1, 0] < 1e-11


def test_a_client_without_samples_is_skipped_whatever_its_scores() -> None:
    weights = odds([0, 2], [[np.nan], [0.0]], "sigmoid")
    assert weights.tolist() == [[0.0], [1.0]]


def variance(logits: Any, space: Any = "probs") -> Any:
    return weighed(parts.WeighVariance(space=space), [1] * len(logits), logits)


def entropy(logits: Any, tau: float = 1.0) -> Any:
    return weighed(parts.WeighEntropy(tau=tau), [1] * len(logits), logits)


def test_variance_by_hand() -> None:
    """p = (3/4, 1/4): variance 1/16; p = (1/2, 1/2): 0. All weight to the first."""
    assert variance([[[np.log(3), 0.0]], [[5.0, 5.0]]])[:, 0].tolist() == [1.0, 0.0]


def test_variance_of_huge_and_tiny_logits() -> None:
    made = variance([[[1e300, 0.0]], [[1e300, 0.0]], [[1.0, 1.0]]], "logits")
    np.testing.assert_allclose(made[:, 0], [0.5, 0.5, 0.0])
    tiny = variance([[[1e-200, 0.0]], [[3e-200, 0.0]]], "logits")
    np.testing.assert_allclose(tiny[:, 0], [0.1, 0.9])


def test_flat_teachers_count_alike() -> None:
    assert variance(np.zeros((4, 2, 3))).tolist() == [[0.25, 0.25]] * 4


def test_entropy_by_hand() -> None:
    """H(1/2, 1/2) = ln 2; a certain teacher has 0: at tau = ln 2 the weights are 1 : e^-1."""
    weights = entropy([[[800.0, 0.0]], [[1.0, 1.0]]], float(np.log(2)))
    np.testing.assert_allclose(weights[:, 0], [E / (E + 1), 1 / (E + 1)], rtol=1e-12)


@pytest.mark.parametrize(("tau", "expected"), [(1e-300, [1.0, 0.0]), (1e300, [0.5, 0.5])])
def test_entropy_at_extreme_temperatures(tau: float, expected: list[float]) -> None:
    beyond = parts.WeighEntropy.model_construct(tau=tau)  # recipes have bounds, the rule has none
    assert weighed(beyond, [1, 1], [[[3.0, 0.0]], [[1.0, 0.0]]])[:, 0].tolist() == expected


def test_a_single_class_makes_teachers_equal() -> None:
    ones = np.random.default_rng(0).normal(size=(2, 3, 1))
    for weights in (variance(ones), entropy(ones)):
        assert weights.tolist() == [[0.5] * 3] * 2


def test_probabilities_of_dafkd_with_zeros() -> None:
    """A discriminator that rejects a sample gives it no weight; where all do, all count alike."""
    given = np.array([[0.0, 0.2, 0.0], [0.6, 0.6, 0.0]])
    made = weighed(parts.WeighDafkd(link="prob"), [1, 1], scores=given)
    np.testing.assert_allclose(made, slow.dafkd(given))
    scores = np.log(given[:, 1] / (1 - given[:, 1]))
    np.testing.assert_allclose(weigh.log_probability(scores), np.log(given[:, 1]))


@every_rule
def test_a_client_without_samples_is_no_teacher(name: str) -> None:
    rng = np.random.default_rng(3)
    logits, scores = rng.normal(size=(3, 4, 5)), rng.normal(size=(3, 4))
    logits[1] = scores[1] = np.nan
    made = rule(name, logits, scores, [5, 0, 9])
    assert not made[1].any()
    np.testing.assert_allclose(made[[0, 2]], rule(name, logits[[0, 2]], scores[[0, 2]], [5, 9]))


def test_log_probability_does_not_overflow() -> None:
    np.testing.assert_allclose(weigh.log_probability([-1e4, 0.0, 1e4]), [-1e4, -np.log(2), 0.0])


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: variance(np.full((2, 1, 2), np.nan)), "non_finite"),
        (lambda: variance(np.zeros((0, 1, 2))), "no_participants"),
        (lambda: weigh.normalise([np.zeros(1), np.zeros(2)]), "schema_mismatch"),
        (lambda: weigh.normalise([np.array([np.inf])]), "non_finite"),
        (lambda: weigh.log_probability([-0.1], "prob"), "out_of_range"),
        (lambda: weigh.log_probability([np.nan]), "non_finite"),
        (lambda: odds([1], [[np.inf]]), "non_finite"),
        (lambda: odds([1], [[1.5]], "prob"), "out_of_range"),
        (lambda: odds([-1], [[0.0]]), "bad_weight"),
        (lambda: odds([np.nan], [[0.0]]), "bad_weight"),
        (lambda: weighed(parts.WeighOdds(), [3], np.zeros((1, 1, 2))), "bad_option"),
    ],
)
def test_refusals(call: Callable[[], object], code: str) -> None:
    with pytest.raises(PartError) as caught:
        call()
    assert caught.value.code == code


@given(LOGITS, SCORES)
def test_a_product_is_the_normalised_product_of_its_factors(logits: np.ndarray, scores: np.ndarray) -> None:
    factors = (parts.WeighOdds(), parts.WeighDafkd(), parts.WeighEntropy())
    made = weighed(parts.WeighProduct(factors=factors), COUNTS, logits, scores)
    product = np.prod([weighed(factor, COUNTS, logits, scores) for factor in factors], axis=0)
    np.testing.assert_allclose(made, product / product.sum(axis=0), rtol=1e-9, atol=1e-12)


def test_a_factor_that_rejects_every_teacher_says_nothing() -> None:
    """Flat outputs have no variance; n = (1, 3) and odds 1 and 2 stay, 1/7 and 6/7. One that rejects some counts."""
    choice = parts.WeighProduct(factors=(parts.WeighOdds(link="sigmoid"), parts.WeighVariance()))
    scores, flat, sure = np.array([[0.0], [np.log(2)]]), [1.0, 1.0], [5.0, 0.0]
    made = weighed(choice, [1, 3], [[flat], [flat]], scores)
    np.testing.assert_allclose(made[:, 0], [1 / 7, 6 / 7], rtol=1e-7)
    assert weighed(choice, [1, 3], [[sure], [flat]], scores)[:, 0].tolist() == [1.0, 0.0]
    nothing = parts.WeighProduct(factors=(parts.WeighVariance(), parts.WeighVariance(space="logits")))
    assert weighed(nothing, [1, 3], [[flat], [flat]])[:, 0].tolist() == [0.5, 0.5]


@given(arrays(np.float64, (3, 4, 5), elements=st.sampled_from([0.0, 1.0, 3.0])), SCORES)
def test_products_are_the_slow_ones_also_where_factors_are_0(logits: np.ndarray, scores: np.ndarray) -> None:
    scores = scores / 3
    choice = parts.WeighProduct(factors=(parts.WeighSamples(), parts.WeighVariance(), parts.WeighDafkd()))
    variance = [[slow.variance(slow.softmax(row)) if np.ptp(row) else 0.0 for row in each] for each in logits]
    certain = [[slow.sigmoid(a) for a in row] for row in scores]
    expected = slow.product(slow.by_samples(COUNTS, 4), variance, certain)
    np.testing.assert_allclose(weighed(choice, COUNTS, logits, scores), expected, rtol=1e-6, atol=1e-9)


# ------------------------------------------------------------------------------------------------------------- groups
GROUPS: tuple[list[int], ...] = ([0, 2], [1], [])


def of_groups(choice: parts.Weigh, scores: Any, logits: Any) -> Any:
    """Return weights [3, B] of groups 0 and 2, 1, and nobody; logits [3, B, C] are the groups' own."""
    rows = [
        weigh.log_weights_of_group(
            choice, own, weigh.of_clients(choice, [(COUNTS[k], scores[k]) for k in members], len(own))
        )
        for members, own in zip(GROUPS, logits, strict=True)
    ]
    return weigh.normalise(rows)


def test_a_groups_weight_by_hand() -> None:
    """n = 5 + 9 and 1. Odds 1, 2, 3: 5 + 27 = 32 and 2, of 34; the empty group has none."""
    scores, logits = np.log([[1.0], [2.0], [3.0]]), np.zeros((3, 1, 2))
    np.testing.assert_allclose(of_groups(parts.WeighSamples(), scores, logits)[:, 0], [14 / 15, 1 / 15, 0])
    odds_ = of_groups(parts.WeighOdds(link="sigmoid"), scores, logits)
    np.testing.assert_allclose(odds_[:, 0], [32 / 34, 2 / 34, 0])
    assert of_groups(parts.WeighUniform(), scores, logits)[:, 0] == pytest.approx([1 / 3] * 3)


@pytest.mark.parametrize("name", ["samples", "dafkd", "odds", "odds-double"])
@given(scores=SCORES)
def test_groups_weigh_what_their_clients_do_together(name: str, scores: np.ndarray) -> None:
    """The sum of the clients' weights: those of teachers that are clients, added up within groups."""
    scores, logits = scores / 3, np.zeros((3, 4, 5))
    expected = slow.of_groups(GROUPS, SLOW[name](logits, scores, COUNTS))
    np.testing.assert_allclose(of_groups(CHOICES[name], scores, logits), expected, rtol=1e-6, atol=1e-9)


@given(logits=LOGITS, scores=SCORES)
def test_groups_of_a_product_weigh_by_their_own_outputs_too(logits: np.ndarray, scores: np.ndarray) -> None:
    scores, logits = scores / 3, np.round(logits, 3)
    choice = parts.WeighProduct(factors=(parts.WeighOdds(), parts.WeighEntropy(tau=0.7), parts.WeighSamples()))
    together = [slow.of_groups(GROUPS, given_) for given_ in (slow.odds(COUNTS, scores), slow.by_samples(COUNTS, 4))]
    expected = slow.product(*together, slow.by_entropy(logits, 0.7))
    np.testing.assert_allclose(of_groups(choice, scores, logits), expected, rtol=1e-6, atol=1e-9)
