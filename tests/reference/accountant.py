"""What DP-SGD costs, slowly: the Renyi divergence of the sampled Gaussian by numerical integration.

Shares nothing with the product: Opacus counts by series of binomial coefficients and of error functions.
"""

import math
from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np

ORDERS = [1 + x / 10 for x in range(1, 100)] + [float(x) for x in range(12, 64)]


@cache
def renyi(sigma: float, rate: float, order: float) -> float:
    """D_a(P || Q) of one step, Q = N(0, sigma^2) and P = (1 - q) Q + q N(1, sigma^2) (Mironov et al. 2019, Thm 4).

    ln E_Q (P/Q)^a / (a - 1), with P/Q = 1 - q + q e^{(2z - 1) / (2 sigma^2)}, by the trapezoid rule.
    """
    reach = 12 * sigma + order + 1
    z = np.linspace(-reach, reach, 20_001)
    with np.errstate(divide="ignore"):
        ratio = np.logaddexp(np.log1p(-rate), np.log(rate) + (2 * z - 1) / (2 * sigma**2))
    logs = order * ratio - z**2 / (2 * sigma**2) - math.log(sigma * math.sqrt(2 * math.pi))
    top = float(logs.max())
    return (top + math.log(float(np.trapezoid(np.exp(logs - top), z)))) / (order - 1)


def epsilon(
    steps: Iterable[tuple[float, float, int]],
    delta: float,
    orders: Sequence[float] = tuple(ORDERS),
    *,
    plain: bool = False,
) -> float:
    """The least epsilon over the orders for steps (sigma, q, how many) together, whose divergences add up.

    Converted as Canonne et al. 2020 (Prop. 12); `plain`: ln(1 / delta) / (a - 1), as Mironov 2017 (Prop. 3).
    """
    known = list(steps)
    found = []
    for order in orders:
        divergence = sum(count * renyi(sigma, rate, order) for sigma, rate, count in known)
        if plain:
            found.append(divergence + math.log(1 / delta) / (order - 1))
        else:
            tail = math.log((order - 1) / order) - (math.log(delta) + math.log(order)) / (order - 1)
            found.append(divergence + tail)
    return min(found)
