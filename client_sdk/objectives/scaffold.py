"""SCAFFOLD on the device: the correction of every step, and the control variate afterwards (Karimireddy et al. 2020).

Symbols as in Alg. 1: x model as it was sent, y after K local steps of rate eta_l, c the server's and c_i the device's
control variate. Parameters only.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from client_sdk.objectives.checks import finite, option, same_shape
from contract.errors import RuleError


@dataclass(frozen=True)
class Variate:
    """What a round's training makes of one parameter, each of its shape and dtype.

    Attributes:
        new: c_i+, kept on the device once the service has acknowledged the round.
        delta_c: c_i+ - c_i, sent.
        delta_y: y - x.
    """

    new: Tensor
    delta_c: Tensor
    delta_y: Tensor


def new_variate(
    x: Tensor,
    y: Tensor,
    c: Tensor,
    c_i: Tensor,
    lr: float,
    steps: int,
    variant: int = 2,
    grad_at_x: Tensor | None = None,
) -> Variate:
    """Return the control variate after local training (Alg. 1, line 12); float64 inside, nothing given is changed.

    Option II: c_i+ = c_i - c + (x - y) / (K eta_l), which holds for plain SGD of constant rate only. Option I: c_i+ is
    the gradient at x over all of the device's data.

    Args:
        x: the parameter as it was sent.
        y: after training.
        c: the server's control variate; zeros in the first round.
        c_i: the device's; zeros at its first participation.
        lr: eta_l, positive.
        steps: K.
        variant: 1 or 2, the paper's option.
        grad_at_x: for option I.

    Raises:
        RuleError: no_steps (K below 1: such a device uploads nothing), bad_option (variant, lr, or option I without a
            gradient), schema_mismatch, non_finite.
    """
    if steps < 1:
        raise RuleError("no_steps", f"{steps} local steps; a device that has not trained has nothing to send")
    option("the learning rate", lr, positive=True)
    if variant not in (1, 2):
        raise RuleError("bad_option", f"option {variant} is not known; use 1 or 2")
    if variant == 1 and grad_at_x is None:
        raise RuleError("bad_option", "option 1 needs the gradient at the model that was sent")
    given = [x, y, c, c_i] if variant == 2 or grad_at_x is None else [x, y, c, c_i, grad_at_x]
    same_shape("SCAFFOLD", *given)
    finite("SCAFFOLD", *given)
    x, y, c, c_i, *gradient = (tensor.detach().double() for tensor in given)
    new = gradient[0] if variant == 1 else c_i - c + (x - y) / (steps * lr)
    dtype = given[0].dtype
    return Variate(new.to(dtype), (new - c_i).to(dtype), (y - x).to(dtype))


def correction(
    module: nn.Module, c: Mapping[str, Tensor], c_i: Mapping[str, Tensor], without: Collection[str] = ()
) -> Tensor:
    """Return sum <c - c_i, w> over the trained parameters, a scalar: its gradient is what Alg. 1, line 10 adds.

    Added to the loss, it makes every gradient g_i(y) - c_i + c.

    Args:
        module: whose parameters are trained.
        c: the server's control variate by parameter.
        c_i: the device's.
        without: names of parameters that the device keeps to itself: there is no drift from what is never averaged.

    Raises:
        RuleError: schema_mismatch (a parameter has no control variate, or one of another shape).
    """
    total = torch.zeros(())
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad or name in without:
            continue
        if name not in c or name not in c_i:
            raise RuleError("schema_mismatch", f"parameter {name!r} has no control variate")
        same_shape(f"parameter {name!r}", parameter, c[name], c_i[name])
        shift = (c[name] - c_i[name]).to(parameter)
        total = total.to(parameter) + (shift * parameter).sum()
    return total
