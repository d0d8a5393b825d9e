"""Methods with other networks beside the trained one: FedGKD's teacher, MOON's global and previous models."""

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from client_sdk import models, named
from client_sdk.methods.base import Method, Outcome, Work, features_of, implements, remembered
from client_sdk.named import Inputs
from client_sdk.objectives import fedgkd, moon
from contract.local import FedGkdObjective, MoonObjective
from contract.nn import codec, losses
from contract.updates import TEACHER

PREVIOUS = "previous."


def frozen(module: nn.Module) -> nn.Module:
    """Return a copy of a network that is evaluated only."""
    return copy.deepcopy(module).eval().requires_grad_(False)


@implements(FedGkdObjective)
class FedGkd(Method):
    """Learn from the mean of the last global models; in the first round there is none, and this is plain training."""

    def __init__(self, options: FedGkdObjective, work: Work):
        super().__init__(options, work)
        self._teacher: nn.Module | None = None
        path = work.extras.get(TEACHER)
        if path is not None:
            self._teacher = frozen(work.module)
            (models.load if work.parts is None else models.load_part)(self._teacher, path)

    def loss(self, inputs: Inputs, labels: Tensor, logits: Tensor, features: Tensor | None) -> Tensor:
        """Return the task's loss + gamma/2 tau^2 KL(teacher || student), over positions where there are several."""
        own = super().loss(inputs, labels, logits, features)
        if self._teacher is None:
            return own
        with torch.no_grad():
            teacher = self.work.logits(named.through(self._teacher, inputs), named.count(inputs))
        mine, other = (losses.flat_rows(each, self.work.task.kind) for each in (logits, teacher))
        return own + fedgkd.distance(mine, other, self.options.gamma, self.options.tau)


@implements(MoonObjective)
class Moon(Method):
    """Draw features to the global model's and away from this device's previous model's.

    A device that takes part for the first time, or whose previous model is of another network, takes the global one.
    """

    needs_features = True

    def __init__(self, options: MoonObjective, work: Work):
        super().__init__(options, work)
        self._global = frozen(work.module)
        self._previous = self._restored(work.memory) or self._global

    def _restored(self, memory: Mapping[str, Tensor]) -> nn.Module | None:
        previous = frozen(self.work.module)
        state = remembered(self.work.state(), memory, PREVIOUS)
        if state is None:
            return None
        codec.unwrap(previous).load_state_dict({**codec.unwrap(previous).state_dict(), **state})
        return previous

    def loss(self, inputs: Inputs, labels: Tensor, logits: Tensor, features: Tensor | None) -> Tensor:
        """Return the task's loss + mu times the contrast."""
        assert features is not None
        with torch.no_grad():
            near = features_of(self._global, inputs)
            far = near if self._previous is self._global else features_of(self._previous, inputs)
        contrast = moon.contrast(features, near, far.unsqueeze(0), self.options.mu, self.options.tau)
        return super().loss(inputs, labels, logits, features) + contrast

    def after(self, steps: int) -> Outcome:
        """Keep the trained model: it is the previous one of the next round."""
        return Outcome(memory={PREVIOUS + name: value for name, value in self.work.state().items()})
