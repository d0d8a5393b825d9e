"""Methods that shape features: FedUV's spread, FedTGP's prototypes of the classes."""

import torch
from torch import Tensor

from client_sdk import modes
from client_sdk.errors import ModelMismatch, UnexpectedAnswer
from client_sdk.methods.base import Method, Outcome, Work, features_of, implements
from client_sdk.named import Inputs
from client_sdk.objectives import fedtgp, feduv
from contract import updates
from contract.local import FedTgpObjective, FedUvObjective


@implements(FedUvObjective)
class FedUv(Method):
    """Spread outputs over the classes and features over their space, as if the data were not skewed."""

    needs_features = True

    def loss(self, inputs: Inputs, labels: Tensor, logits: Tensor, features: Tensor | None) -> Tensor:
        """Return cross-entropy + the two spreads."""
        assert features is not None
        spread = feduv.spread(logits, features, self.options.std_weight, self.options.unif_weight)
        return super().loss(inputs, labels, logits, features) + spread.loss


@implements(FedTgpObjective)
class FedTgp(Method):
    """Draw features to the server's trained prototypes; send the means of this device's features per class."""

    needs_features = True

    def __init__(self, options: FedTgpObjective, work: Work):
        super().__init__(options, work)
        assert work.samples.task is not None
        self._shape = (work.samples.task.num_classes, updates.features_of(work.base))
        found = work.extra(updates.PROTOTYPES)
        self._prototypes = None if found is None else found.get(updates.PROTOTYPES, torch.empty(0))
        if self._prototypes is not None and tuple(self._prototypes.shape) != self._shape:
            raise UnexpectedAnswer(
                f"extras.prototypes: tensor 'prototypes' has shape {list(self._prototypes.shape)}, expected "
                f"{list(self._shape)}, one row per class; tell the operator"
            )

    def loss(self, inputs: Inputs, labels: Tensor, logits: Tensor, features: Tensor | None) -> Tensor:
        """Return cross-entropy + lambda times the mean squared distance to the prototypes, once there are any."""
        assert features is not None
        own = super().loss(inputs, labels, logits, features)
        if self._prototypes is None:
            return own
        return own + fedtgp.pull(features, labels, self._prototypes.to(features.dtype), self.options.weight)

    def after(self, steps: int) -> Outcome:
        """Send class_means [C, d], zeros for a class without samples, and class_counts [C]."""
        work, features, labels = self.work, [], []
        rows = list(torch.split(torch.arange(len(work.samples)), work.plan.batch_size))
        with modes.evaluation(work.module), torch.no_grad(), work.quantised():
            for x, y in work.samples.read(rows, work.device, work.seed):
                work.on_pass()
                features.append(features_of(work.module, x).float().cpu())
                labels.append(y.cpu())
        found = fedtgp.class_means(torch.cat(features), torch.cat(labels), self._shape[0])
        if found.means.shape[1] != self._shape[1]:
            raise ModelMismatch(
                f"model: features(x) gives {found.means.shape[1]} values, and the federation's model has "
                f"{self._shape[1]} features; use its architecture"
            )
        return Outcome(tensors={updates.CLASS_MEANS: found.means, updates.CLASS_COUNTS: found.counts})
