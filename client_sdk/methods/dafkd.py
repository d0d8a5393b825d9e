"""DaFKD on the device: classifier, discriminator and generator trained together, the first two on one trunk."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from client_sdk import models
from client_sdk.errors import ModelMismatch, TrainingError
from client_sdk.methods.base import Method, Outcome, Work, features_of, implements
from client_sdk.named import Inputs
from client_sdk.objectives.dafkd import Certainty, discriminator_loss, generator_loss
from contract import updates
from contract.local import DafkdObjective
from contract.nn import registry
from contract.nn.judge import Judge, head_of
from contract.nn.optim import make_optimizer
from contract.nn.scaling import from_signed_unit
from contract.nn.seeding import global_seed
from contract.nn.wgan import gradient_penalty
from contract.seeds import derive_seed


class _Judge(Judge):
    """As `Judge`, of a network that may be the user's own."""

    def forward(self, x: Tensor) -> Tensor:
        return self.of_features(features_of(self.trunk, x))


@implements(DafkdObjective)
class Dafkd(Method):
    """The generator goes on from the one that was sent, the discriminator's head from the one that this device kept.

    The round's loop steps the model after `loss`. What is beside the model takes the same step when the next batch
    comes, and after the last one.
    """

    needs_features = True
    takes_several = False

    def __init__(self, options: DafkdObjective, work: Work):
        super().__init__(options, work)
        self._draw = torch.Generator().manual_seed(derive_seed(work.seed, "noise"))
        self._generator = self._sent_generator()
        self._judge = _Judge(work.module, self._own_head())
        self._latent = int(self._generator.latent)  # type: ignore[arg-type]
        self._learns, self._teaches = options.trains(work.round_index)
        self._head_optimizer = make_optimizer(work.plan.optimizer, list(self._judge.head.parameters()))
        self._generator_optimizer = make_optimizer(options.optimizer, list(self._generator.parameters()))
        self._waits = 0

    def loss(self, inputs: Inputs, labels: Tensor, logits: Tensor, features: Tensor | None) -> Tensor:
        """Return cross-entropy + BCE of real and generated samples + penalty (||grad D||_2 - 1)^2 between them."""
        assert features is not None and isinstance(inputs, Tensor)
        self._step_beside()
        self._waits = len(inputs)
        loss = self.work.own_loss(logits, labels)
        if not self._learns:
            return loss
        with torch.no_grad():
            fakes = self._fakes(len(inputs)).to(inputs.dtype)[: len(inputs)]
        with _untracked(self.work.module):
            loss = loss + discriminator_loss(self._judge.of_features(features), self._judge(fakes))
            if self.options.penalty:
                mix = torch.rand(len(inputs), generator=self._draw).to(inputs)
                slope = gradient_penalty(Certainty(self._judge), inputs.detach(), fakes, mix)
                loss = loss + self.options.penalty * slope
        return loss

    def after(self, steps: int) -> Outcome:
        """Send generator and head; keep the head."""
        self._step_beside()
        head = {updates.DISCRIMINATOR + name: value for name, value in self._judge.head.state_dict().items()}
        sent = {updates.GENERATOR + name: value for name, value in self._generator.state_dict().items()} | head
        for name, value in sent.items():
            if value.is_floating_point() and not bool(torch.isfinite(value).all()):
                raise TrainingError(
                    f"tensor {name!r} has a value that is NaN or infinite; nothing was uploaded. The operator can "
                    "lower local.objective.optimizer.lr and local.optimizer.lr"
                )
        return Outcome(tensors=sent, memory=head)

    def _step_beside(self) -> None:
        """Step the head by the gradient that the loop left on it, then the generator against the stepped networks."""
        if not self._waits:
            return
        if self._learns:
            self._head_optimizer.step()
            self._head_optimizer.zero_grad(set_to_none=True)
        if self._teaches:
            self._step_generator(self._waits)
        self._waits = 0

    def _step_generator(self, count: int) -> None:
        parameters = list(self._generator.parameters())
        dtype = next(self.work.module.parameters()).dtype
        with self.work.quantised(), _untracked(self.work.module):
            loss = generator_loss(self._judge(self._fakes(count).to(dtype)))
            gradients = torch.autograd.grad(loss, parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        self._generator_optimizer.step()

    def _fakes(self, count: int) -> Tensor:
        """Return fresh samples as data are: two where one is asked for, since BatchNorm has no statistics of one."""
        noise = torch.randn(max(count, 2), self._latent, generator=self._draw)
        return from_signed_unit(self._generator(noise.to(self.work.device)), self.options.input_range)

    def _sent_generator(self) -> nn.Module:
        work, options = self.work, self.options
        assert work.samples.task is not None
        try:
            generator = registry.build(options.architecture, options.options, task=work.samples.task)
        except ValueError as error:
            raise ModelMismatch(f"generator: {error}; update potstill") from error
        models.load(generator, work.extras[updates.SENT_GENERATOR])
        return generator.to(work.device).train()

    def _own_head(self) -> nn.Module:
        """Return the head that this device kept, or a first one: a device that lost its own starts anew."""
        work = self.work
        with global_seed(derive_seed(work.seed, "discriminator")):
            head = head_of(updates.features_of(work.base))
        kept = _kept(head, work.memory)
        if kept is not None:
            head.load_state_dict(kept)
        return head.to(work.device)


def _kept(head: nn.Module, memory: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    own = head.state_dict()
    found = {name: memory.get(updates.DISCRIMINATOR + name) for name in own}
    if any(value is None or value.shape != own[name].shape for name, value in found.items()):
        return None
    return {name: value for name, value in found.items() if value is not None}


@contextmanager
def _untracked(module: nn.Module) -> Iterator[None]:
    """Let BatchNorm use a batch's statistics without remembering them: its running ones are of real samples."""
    norms = [
        layer
        for layer in module.modules()
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.training and layer.track_running_stats
    ]
    for layer in norms:
        layer.track_running_stats = False
    try:
        yield
    finally:
        for layer in norms:
            layer.track_running_stats = True
