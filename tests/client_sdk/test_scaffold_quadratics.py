"""SCAFFOLD's formulas of device and server together, where the answer is known."""

import pytest
import torch
from torch import nn

from client_sdk.objectives.scaffold import correction, new_variate


def test_scaffold_converges_where_averaging_drifts() -> None:
    """Two devices with f_1 = (w - 1)^2 and f_2 = 2 (w + 1)^2, ten local steps each.

    The mean is least where 2 (w - 1) + 4 (w + 1) = 0: w = -1/3. FedAvg settles at the fixed point of its local runs.
    """
    curvature, centre = (2.0, 4.0), (1.0, -1.0)
    rate, steps, best = 0.1, 10, -1 / 3

    def run(corrected: bool) -> float:
        x, c, own = torch.zeros(1), torch.zeros(1), [torch.zeros(1), torch.zeros(1)]
        for _ in range(60):
            moved, changed = [], []
            for i in range(2):
                module = nn.Module()
                module.w = nn.Parameter(x.clone())
                for _ in range(steps):
                    module.zero_grad()
                    loss = curvature[i] / 2 * (module.w - centre[i]).square().sum()
                    if corrected:
                        loss = loss + correction(module, {"w": c}, {"w": own[i]})
                    loss.backward()
                    assert module.w.grad is not None
                    module.w.data -= rate * module.w.grad
                found = new_variate(x, module.w.detach(), c, own[i], rate, steps)
                own[i] = found.new
                moved.append(found.delta_y)
                changed.append(found.delta_c)
            x, c = x + sum(moved) / 2, c + sum(changed) / 2
            assert not corrected or torch.allclose(c, torch.stack(own).mean(0), atol=1e-5)
        return float(x)

    assert run(corrected=True) == pytest.approx(best, abs=1e-4)
    assert abs(run(corrected=False) - best) > 0.1
