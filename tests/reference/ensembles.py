"""Rules of ensembles, slowly: one sample after another from the papers' formulas, sharing nothing with the product.

m teachers, B samples, C classes: logits [m][B][C], scores [m][B], weights [m][B].
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

Row = Sequence[float]


def softmax(row: Row) -> list[float]:
    top = max(row)
    powers = [math.exp(float(z) - float(top)) for z in row]
    return [each / math.fsum(powers) for each in powers]


def sigmoid(a: float) -> float:
    return 1 / (1 + math.exp(-a)) if a >= 0 else math.exp(a) / (1 + math.exp(a))


def entropy(row: Row) -> float:
    return -math.fsum(p * math.log(p) for p in softmax(row) if p > 0)


def variance(row: Row) -> float:
    mean = math.fsum(row) / len(row)
    return math.fsum((each - mean) ** 2 for each in row) / len(row)


# ----------------------------------------------------------------------------------------------------- weights, [m][B]
def shared(raw: Sequence[Sequence[float]], nobody: Row | None = None) -> list[list[float]]:
    """Divide by the sum over teachers; where that is 0, by `nobody`'s, one number a teacher, or alike."""
    result = [[0.0] * len(row) for row in raw]
    for j in range(len(raw[0])):
        column = [row[j] for row in raw]
        if math.fsum(column) == 0:
            column = list(nobody or [1.0] * len(raw))
        for k, each in enumerate(column):
            result[k][j] = each / math.fsum(column)
    return result


def uniform(teachers: int, samples: int) -> list[list[float]]:
    """FedDF: 1 / m."""
    return [[1 / teachers] * samples for _ in range(teachers)]


def by_samples(num_samples: Row, samples: int) -> list[list[float]]:
    """n_k / sum n."""
    return [[n / math.fsum(num_samples)] * samples for n in num_samples]


def by_variance(logits: Any, space: str = "probs") -> list[list[float]]:
    """Fed-ET eq. 3, of the probabilities; of the logits as FedGO describes it."""
    return shared([[variance(softmax(row) if space == "probs" else row) for row in each] for each in logits])


def by_entropy(logits: Any, tau: float = 1.0) -> list[list[float]]:
    """FedHKT, FedDS: softmax over teachers of -H / tau."""
    turned = [softmax([-entropy(each[j]) / tau for each in logits]) for j in range(len(logits[0]))]
    return [[column[k] for column in turned] for k in range(len(logits))]


def dafkd(probabilities: Any) -> list[list[float]]:
    """DaFKD: D_k / sum D."""
    return shared(probabilities)


LINKS: dict[str, Callable[[float], float]] = {
    "double_sigmoid": lambda a: sigmoid(sigmoid(a)),
    "sigmoid": sigmoid,
    "prob": lambda d: d,
}


def odds(num_samples: Row, scores: Any, link: str = "double_sigmoid", power: float = 1.0) -> list[list[float]]:
    """FedGO eq. 9: n_k (D_k / (1 - D_k))^power, normalised; D within 1e-6 of 0 and 1 counts as if it were there."""
    raw = []
    for n, row in zip(num_samples, scores, strict=True):
        clipped = [min(max(LINKS[link](float(a)), 1e-6), 1 - 1e-6) for a in row]
        raw.append([n * (d / (1 - d)) ** power for d in clipped])
    return shared(raw)


def of_groups(groups: Sequence[Sequence[int]], client_weights: Sequence[Sequence[float]]) -> list[list[float]]:
    """A group's weight is the sum of its clients', sample by sample; nobody's is 0."""
    samples = len(client_weights[0])
    return [[math.fsum(client_weights[k][j] for k in group) for j in range(samples)] for group in groups]


def product(*given: Sequence[Sequence[float]]) -> list[list[float]]:
    """Multiply raw weights [m][B], and normalise. Teachers count for which the fewest factors are 0, by the others."""
    teachers, samples = len(given[0]), len(given[0][0])
    raw = [[0.0] * samples for _ in range(teachers)]
    for j in range(samples):
        zeros = [sum(each[k][j] == 0 for each in given) for k in range(teachers)]
        for k in range(teachers):
            if zeros[k] == min(zeros):
                raw[k][j] = math.prod(each[k][j] for each in given if each[k][j] != 0)
    return shared(raw)


# ------------------------------------------------------------------------------------------------ pseudo-labels [B][C]
def _mixed(values: Any, weights: Any) -> list[list[float]]:
    """sum_k w_k v_k; a teacher of weight 0 is skipped, not multiplied."""
    return [
        [
            math.fsum(float(weights[k][j]) * float(values[k][j][c]) for k in range(len(values)) if weights[k][j] > 0)
            for c in range(len(values[0][j]))
        ]
        for j in range(len(values[0]))
    ]


def average_logits(logits: Any, weights: Any = None, temperature: float = 1.0) -> list[list[float]]:
    """FedDF AVGLOGITS, FedGO Alg. 1 line 10, FedSDD eq. 5: softmax(sum_k w_k f_k / T)."""
    weights = uniform(len(logits), len(logits[0])) if weights is None else weights
    return [softmax([z / temperature for z in row]) for row in _mixed(logits, weights)]


def average_probs(logits: Any, weights: Any = None) -> list[list[float]]:
    """FedBE eq. 4: sum_k w_k softmax(f_k)."""
    weights = uniform(len(logits), len(logits[0])) if weights is None else weights
    return _mixed([[softmax(row) for row in each] for each in logits], weights)


def sharpened(probs: Any, power: float) -> list[list[float]]:
    """FedBE 5.1: p^s / sum p^s."""
    powers = [[p**power for p in row] for row in probs]
    return [[each / math.fsum(row) for each in row] for row in powers]


def era(probs: Any, temperature: float) -> list[list[float]]:
    """DS-FL eq. 12: softmax(p / T) of mean probabilities p."""
    return [softmax([p / temperature for p in row]) for row in probs]


def consensus(logits: Any, weights: Any) -> tuple[list[list[float]], list[int], list[list[float]]]:
    """Fed-ET eq. 4 to 8: the consensus, its label, and the weighted vote of those whose own argmax is another."""
    mean, labels, diverse = average_probs(logits, weights), [], []
    for j, row in enumerate(mean):
        label = min(c for c, p in enumerate(row) if p > max(row) - 1e-12)
        target = [0.0] * len(row)
        for k, each in enumerate(logits):
            own = softmax(each[j])
            if own.index(max(own)) != label:
                target = [t + weights[k][j] * p for t, p in zip(target, own, strict=True)]
        labels.append(label)
        diverse.append(target)
    return mean, labels, diverse


# ------------------------------------------------------------------------------------------------------- losses, means
def kl(student: Any, teacher: Any, temperature: float = 1.0, scale_t2: bool = True) -> float:
    """Hinton et al.: T^2 KL(teacher_T || student_T), mean over the samples."""
    total = 0.0
    for theirs, ours in zip(teacher, student, strict=True):
        p, q = (softmax([z / temperature for z in row]) for row in (theirs, ours))
        total += math.fsum(a * (math.log(a) - math.log(b)) for a, b in zip(p, q, strict=True) if a > 0)
    return total / len(student) * (temperature**2 if scale_t2 else 1.0)


def soft_cross_entropy(student: Any, target: Any) -> float:
    """FedBE section 4: mean of -sum_c y_c ln q_c."""
    rows = zip(student, target, strict=True)
    return sum(-math.fsum(y * math.log(q) for y, q in zip(t, softmax(s), strict=True)) for s, t in rows) / len(target)


def fedet_loss(student: Any, labels: Sequence[int], diverse: Any, diversity: float) -> float:
    """Fed-ET eq. 9 and 10: mean of -ln q_label + lambda sum_c d_c (ln d_c - ln q_c)."""
    total = 0.0
    for row, label, target in zip(student, labels, diverse, strict=True):
        q = softmax(row)
        total += -math.log(q[label])
        total += diversity * math.fsum(d * (math.log(d) - math.log(p)) for d, p in zip(target, q, strict=True) if d > 0)
    return total / len(labels)


def balanced(odds: Any, counts: Any, sweeps: int) -> list[list[float]]:
    """Reflux: n_k Phi_k(x) [N][S], scaled so that samples' sums are 1 and clients' means n_k / n, in turn."""
    total, size = math.fsum(counts), len(odds[0])
    rows = [[n * value / (math.fsum(row) / size) for value in row] for n, row in zip(counts, odds, strict=True)]
    for _ in range(sweeps):
        sums = [math.fsum(row[x] for row in rows) for x in range(size)]
        rows = [[value / sums[x] for x, value in enumerate(row)] for row in rows]
        means = [math.fsum(row) / size for row in rows]
        rows = [[v * n / total / mean for v in row] for n, row, mean in zip(counts, rows, means, strict=True)]
    return rows
