"""FedMA on the device: the first round starts at its own weights, later ones leave the layers that are fused already.

Wang et al. 2020, Alg. 1.
"""

import math
from collections.abc import Collection

import torch
from torch import Tensor

from client_sdk.errors import ModelMismatch
from client_sdk.methods.base import Method, Work, implements
from contract.chains import Chain, chain
from contract.local import FedMaObjective
from contract.nn import codec, registry
from contract.seeds import derive_seed


@implements(FedMaObjective)
class FedMa(Method):
    """Train a whole network of one's own, then what follows the layers that earlier rounds fused."""

    def __init__(self, options: FedMaObjective, work: Work):
        super().__init__(options, work)
        network, task = work.prototype, work.samples.task
        assert task is not None
        if network is None:
            raise ModelMismatch("model: the objective 'fedma' goes by the layers of a registered architecture")
        self._network, self._task = network, task
        try:
            self._chain = chain(network.architecture, network.options, task.input.shape, task.num_classes)
        except ValueError as error:
            raise ModelMismatch(f"model: {error}") from error

    def frozen(self) -> Collection[str]:
        """Return the parameters of the layers before the one that this round fuses."""
        return self._chain.frozen_in(self.work.round_index - 1)

    def before(self, order: torch.Generator) -> None:
        """In the first round put first weights of the device's own in place of those that were sent."""
        if self.options.start == "sent" or self.work.round_index > 1:
            return
        seed = derive_seed(self.work.seed, "start")
        drawn = registry.initialise(self._network.architecture, self._network.options, self._task, seed).state_dict()
        put_to_sleep(self._chain, drawn, self.options.start_width)
        with torch.no_grad():
            for name, parameter in codec.unwrap(self.work.module).named_parameters():
                if parameter.requires_grad:  # what the user froze stays
                    parameter.copy_(drawn[name])


def put_to_sleep(layers: Chain, state: dict[str, Tensor], width: float) -> None:
    """Set the last units of every layer but the last, and what reads them, to zero: a narrower network.

    Args:
        layers: the network's.
        state: its tensors, changed in place.
        width: share of each layer's units that stay, rounded up.
    """
    awake: int | None = None
    for layer in layers.layers:
        before, awake = awake, math.ceil(layer.units * width) if layer is not layers.layers[-1] else layer.units
        for name, view in layer.tensors.items():
            values = state[name].view(view.shape)
            values.movedim(view.units, 0)[awake:] = 0
            if view.recurrent is not None:
                values.movedim(view.recurrent, 0)[awake:] = 0
            if view.inputs is not None and before is not None:
                values.movedim(view.inputs, 0)[before:] = 0
