"""Gradients of each sample by itself, of any loss: for DP-SGD of discriminators and critics.

Opacus's hooks see layers, and one pass of a batch. A discriminator's loss takes two, and WGAN-GP's penalty has a
gradient inside; a function of one sample, differentiated for all at once, has room for both.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from client_sdk.data import Samples
from client_sdk.errors import ModelMismatch
from client_sdk.privacy import Mechanism, check_apart
from contract.local import Privacy

Call = Callable[[Tensor], Tensor]
"""The network as a function of one sample: [*shape] -> its output."""

SampleLoss = Callable[..., Tensor]
"""(call, a row of each argument) -> the scalar that one sample adds to the loss."""


def gradients(module: nn.Module, loss: SampleLoss, rows: tuple[Tensor, ...]) -> tuple[dict[str, Tensor], Tensor]:
    """Return each trained parameter's gradients [B, *shape], one for each row of the arguments, and the losses [B].

    Args:
        module: in training mode; its buffers stay as they are.
        loss: of one sample. It calls the network as often as it likes, also inside a gradient of its own.
        rows: the arguments [B, ...], of at least one sample.

    Raises:
        ModelMismatch: the module cannot be differentiated sample by sample, such as one that changes its buffers.
    """
    state = {name: value.detach() for name, value in (*module.named_parameters(), *module.named_buffers())}
    trained = {name: value.detach() for name, value in module.named_parameters() if value.requires_grad}

    def of_one(parameters: dict[str, Tensor], *row: Tensor) -> Tensor:
        def call(sample: Tensor) -> Tensor:
            output: Tensor = functional_call(module, state | parameters, (sample.unsqueeze(0),))
            return output[0]

        return loss(call, *row)

    each = vmap(grad_and_value(of_one), in_dims=(None, *(0 for _ in rows)), randomness="different")
    try:
        found, losses = each(trained, *rows)
    except torch.cuda.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise ModelMismatch(
            f"model: no sample's share in its gradient can be told, which local.privacy needs: {error}"
        ) from error
    return found, losses


class PrivateLoss(Mechanism):
    """Private steps of a network by a loss of each sample.

    Raises:
        UsageError: Opacus is not installed.
        ModelMismatch: the module has BatchNorm.
    """

    def __init__(
        self,
        options: Privacy,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        samples: Samples,
        device: torch.device,
        *,
        batch_size: int,
        epochs: int,
        what: str,
    ):
        check_apart(module, what)
        super().__init__(options, optimizer, samples, device, batch_size=batch_size, epochs=epochs)
        self._module = module

    def take_gradient(self, loss: SampleLoss, *rows: Tensor) -> Tensor:
        """Give the parameters a batch's clipped and noised gradient, in place of any other; return its loss, summed.

        Args:
            loss: of one sample.
            rows: its arguments [B, ...], B as it was drawn; it may be 0, and then there is noise alone.
        """
        self.zero_grad()
        count, lost = len(rows[0]), torch.zeros((), device=self.device)
        if count:
            found, losses = gradients(self._module, loss, rows)
            lost = losses.detach().sum()
            for name, parameter in self._module.named_parameters():
                if parameter.requires_grad:
                    parameter.grad_sample = found[name]  # type: ignore[attr-defined]
        self.privatise(count)
        return lost

    def close(self) -> None:
        """Leave nothing of the samples on the parameters."""
        for parameter in self._module.parameters():
            for name in ("grad_sample", "summed_grad"):
                if hasattr(parameter, name):
                    delattr(parameter, name)
