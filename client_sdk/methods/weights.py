"""Methods that look at the weights alone: FedProx, FedMA's frozen layers."""

from collections.abc import Collection

from torch import Tensor

from client_sdk.errors import ModelMismatch
from client_sdk.methods.base import Method, Work, implements
from client_sdk.objectives.fedprox import proximal
from contract.chains import chain
from contract.local import FedMaObjective, FedProxObjective


@implements(FedProxObjective)
class FedProx(Method):
    """Stay near the model as it was sent; under low precision this is about the float weights."""

    def __init__(self, options: FedProxObjective, work: Work):
        super().__init__(options, work)
        self._sent = [parameter.detach().clone() for parameter in work.parameters.values()]

    def penalty(self) -> Tensor:
        """Return mu/2 ||w - w_sent||^2."""
        return proximal(list(self.work.parameters.values()), self._sent, self.options.mu)


@implements(FedMaObjective)
class FedMa(Method):
    """Leave the layers that earlier rounds fused as they were sent, and train what follows (FedMA, Alg. 1)."""

    def frozen(self) -> Collection[str]:
        """Return the parameters of the layers before the one that this round fuses."""
        network, task = self.work.prototype, self.work.samples.task
        assert task is not None
        if network is None:
            raise ModelMismatch("model: the objective 'fedma' goes by the layers of a registered architecture")
        try:
            layers = chain(network.architecture, network.options, task.input.shape, task.num_classes)
        except ValueError as error:
            raise ModelMismatch(f"model: {error}") from error
        return layers.frozen_in(self.work.round_index - 1)
