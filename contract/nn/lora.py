"""Low-rank adapters (Hu et al. 2022, "LoRA: Low-Rank Adaptation of Large Language Models")."""

import math

import torch
from torch import Tensor, nn


class LoraLinear(nn.Linear):
    """A linear layer W with an adapter beside it: x W^T + b + (alpha / r) x A^T B^T (Hu et al. 2022, eq. 3).

    A [r, in] is the tensor ``lora_a.weight``, B [out, r] ``lora_b.weight``; W and b have the names of a plain layer's.

    Args:
        inputs: in.
        outputs: out.
        rank: r.
        alpha: what the adapter counts, together with r.
    """

    def __init__(self, inputs: int, outputs: int, *, rank: int, alpha: float):
        super().__init__(inputs, outputs)
        self.lora_a = nn.Linear(inputs, rank, bias=False)
        self.lora_b = nn.Linear(rank, outputs, bias=False)
        self._share = alpha / rank
        self.reset_adapter()

    def reset_adapter(self) -> None:
        """Draw A as the authors' code does, uniform within 1 / sqrt(in), and set B to zero: the layer is W alone."""
        nn.init.kaiming_uniform_(self.lora_a.weight, a=math.sqrt(5))
        with torch.no_grad():
            self.lora_b.weight.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        plain: Tensor = super().forward(x)
        adapter: Tensor = self.lora_b(self.lora_a(x))
        return plain + self._share * adapter
