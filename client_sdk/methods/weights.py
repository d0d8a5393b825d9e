"""Methods that look at the weights alone: FedProx."""

from torch import Tensor

from client_sdk.methods.base import Method, Work, implements
from client_sdk.objectives.fedprox import proximal
from contract.local import FedProxObjective


@implements(FedProxObjective)
class FedProx(Method):
    """Stay near the model as it was sent; under low precision this is about the float weights."""

    def __init__(self, options: FedProxObjective, work: Work):
        super().__init__(options, work)
        self._sent = [parameter.detach().clone() for parameter in work.averaged.values()]

    def penalty(self) -> Tensor:
        """Return mu/2 ||w - w_sent||^2."""
        return proximal(list(self.work.averaged.values()), self._sent, self.options.mu)
