"""What every local method is given, and the hooks it may override."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from client_sdk import modes, named
from client_sdk.data import Samples
from client_sdk.errors import ModelMismatch, UnexpectedAnswer
from client_sdk.named import Inputs
from client_sdk.outputs import logits_of
from client_sdk.precision import Binary
from contract.choices import Implementations
from contract.local import LocalPlan, SgdObjective
from contract.nn import codec, losses
from contract.partition import Partition
from contract.tensors import Header, TensorError, TensorFile
from contract.wire.federations import Prototype, Task


@dataclass
class Work:
    """One round's local training.

    Attributes:
        module: maps [B, *input] to outputs [B, *task.output_shape]; has the weights as they were sent when a method is
            made. Of classifications these are logits [B, C], and labels [B]; the hooks below write them so.
        parameters: what is trained, by name; a tied parameter once.
        base: header of the model as it was sent.
        extras: files that came with the assignment, by what they are.
        memory: what the method kept of this device's earlier rounds, by the method's own names.
        first: this device has not taken part before.
        round_index: 1 for the federation's first round.
        prototype: what the network is, where it is one of the catalogue.
        binary: the module's low precision, if any.
        on_pass: called before each batch that goes through the network: a sign of life.
        parts: which tensors are trained, sent and kept; None: all are trained and sent.
        criterion: what is minimised in place of the task's loss.
        mixed: what forward passes compute in where torch.autocast does; None: in the module's own.
    """

    module: nn.Module
    parameters: dict[str, nn.Parameter]
    samples: Samples
    plan: LocalPlan
    base: Header
    extras: Mapping[str, Path]
    memory: Mapping[str, Tensor]
    first: bool
    seed: int
    device: torch.device
    round_index: int = 1
    prototype: Prototype | None = None
    binary: Binary | None = None
    on_pass: Callable[[], None] = lambda: None
    parts: Partition | None = None
    criterion: Callable[[Tensor, Tensor], Tensor] | None = None
    mixed: torch.dtype | None = None

    @property
    def moving(self) -> frozenset[str] | None:
        """The names of the tensors that training may change; None: all."""
        return None if self.parts is None else self.parts.moving

    @property
    def kept(self) -> tuple[str, ...]:
        """The names of the tensors that this device trains for itself."""
        return () if self.parts is None else self.parts.kept

    @property
    def averaged(self) -> dict[str, nn.Parameter]:
        """What is trained and sent, by name: what other devices' models have a say in."""
        return {name: value for name, value in self.parameters.items() if name not in self.kept}

    def state(self) -> dict[str, Tensor]:
        """Return the network's tensors that training may change."""
        state = codec.unwrap(self.module).state_dict()
        return state if self.parts is None else {name: state[name] for name in state if name in self.parts.moving}

    @contextmanager
    def passes(self, batch: int) -> Iterator[None]:
        """Run forward and backward passes of one batch in training mode.

        BatchNorm uses its running statistics for a batch of one, for which it has no statistics of its own.
        """
        self.on_pass()
        with statistics_kept(self.module, batch), self.quantised():
            yield

    @contextmanager
    def quantised(self) -> Iterator[None]:
        """Run the network as it will be sent: with rounded weights under low precision."""
        if self.binary is None:
            yield
            return
        with self.binary.applied():
            yield

    def forward(self, inputs: Inputs, with_features: bool, *, scaled: bool = True) -> tuple[Tensor, Tensor | None]:
        """Return logits [B, C], and features [B, d] if they are asked for; both in full precision.

        Args:
            scaled: the loss will be, or no gradient is made; else float16, where small gradients vanish, isn't taken.
        """
        mixed = self.mixed if scaled or self.mixed != torch.float16 else None
        with nullcontext() if mixed is None else torch.autocast(self.device.type, mixed):
            if not with_features:
                return self.logits(named.through(self.module, inputs), named.count(inputs)), None
            features = features_of(self.module, inputs)
            logits = self.logits(self.module.head(features), len(features))  # type: ignore[operator]
        return logits, features if mixed is None else features.float()

    def own_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of a batch by its labels alone, a scalar: the task's, or what takes its place."""
        return losses.hard(logits, labels, self.task) if self.criterion is None else self.criterion(logits, labels)

    @property
    def task(self) -> Task:
        """What the samples were checked against."""
        assert self.samples.task is not None
        return self.samples.task

    def logits(self, returned: Any, batch: int, inputs: str = "samples") -> Tensor:
        """Return the outputs in what a network returned (`client_sdk.outputs.logits_of`)."""
        return logits_of(returned, batch, self.task.output_shape, inputs)

    def extra(self, name: str) -> dict[str, Tensor] | None:
        """Return the tensors of a file that came with the assignment, on the device; None if it did not come.

        Raises:
            UnexpectedAnswer: the file is not sound.
        """
        path = self.extras.get(name)
        if path is None:
            return None
        try:
            with TensorFile(path) as file:
                return {key: codec.read_tensor(file, key).to(self.device) for key in file.names}
        except TensorError as error:
            raise UnexpectedAnswer(f"extras.{name}: {error.detail}") from error


@dataclass
class Outcome:
    """What a method adds to the trained weights.

    Attributes:
        tensors: for the update's file, by their names there.
        memory: for this device's next round.
        control_reset: SCAFFOLD's control variate was lost and started at zeros again.
    """

    tensors: dict[str, Tensor] = field(default_factory=dict)
    memory: dict[str, Tensor] = field(default_factory=dict)
    control_reset: bool = False


class Method:
    """The task's loss on the device's own labels; other methods override hooks.

    Made once per round, before the first step: `work.module` still has the weights as they were sent.
    """

    needs_features: ClassVar[bool] = False
    takes_several: ClassVar[bool] = True
    """Whether a sample may have several inputs: not where data that are not the device's go through its network."""

    @classmethod
    def goes_on(cls, module: nn.Module, memory: Mapping[str, Tensor]) -> bool:
        """Whether this device trains a model of its own that is in its memory, so that none need be fetched."""
        return False

    @classmethod
    def reads_samples(cls, options: Any) -> bool:
        """Whether this method reads samples itself, beside those that are trained on."""
        return cls.needs_features

    def __init__(self, options: Any, work: Work):
        self.options, self.work = options, work
        if self.needs_features:
            require_features(work)

    def asks(self) -> frozenset[str]:
        """Return what a training of the user's own must take from its task (`client_sdk.loops.LocalTask`)."""
        own, plain = type(self), Method
        parts = {"penalty": own.penalty is not plain.penalty, "loss": own.loss is not plain.loss}
        return frozenset(name for name, differs in parts.items() if differs)

    def frozen(self) -> Collection[str]:
        """Return the names of parameters that stay as they were sent; at least one is trained."""
        return ()

    def before(self, order: torch.Generator) -> None:
        """Do what comes before the first step on the device's own data; `order` is for orders of samples."""

    def penalty(self) -> Tensor | None:
        """Return a scalar of the weights alone, or None. Its gradient joins that of the data's loss, after DP-SGD has
        clipped and noised the latter; it is no part of the loss that is reported.
        """
        return None

    def loss(self, inputs: Inputs, labels: Tensor, logits: Tensor, features: Tensor | None) -> Tensor:
        """Return the mean loss of a batch: inputs [B, *input], labels [B], logits [B, C], features [B, d]."""
        return self.work.own_loss(logits, labels)

    def after(self, steps: int) -> Outcome:
        """Return what is sent and kept beside the weights, after the last of `steps` steps."""
        return Outcome()


implements: Implementations[type[Method]] = Implementations("device")
"""Which class of methods does what an objective says: ``@implements(FedProxObjective)`` above the class."""

implements(SgdObjective)(Method)


def remembered(own: Mapping[str, Tensor], memory: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor] | None:
    """Return the state that `memory` has under a prefix, or None if it has other tensors than a network's `own`."""
    state = {name.removeprefix(prefix): value for name, value in memory.items() if name.startswith(prefix)}
    if state.keys() != own.keys() or any(state[name].shape != value.shape for name, value in own.items()):
        return None
    return state


def features_of(module: nn.Module, inputs: Inputs) -> Tensor:
    """Return the features [B, d] of inputs [B, *input].

    Raises:
        ModelMismatch: they have another shape.
    """
    features: Tensor = named.through(module.features, inputs)  # type: ignore[arg-type]
    batch = named.count(inputs)
    if not isinstance(features, Tensor):
        raise ModelMismatch(
            f"model: features(x) returned a {type(features).__name__}; return one vector per sample, shape [B, d]"
        )
    if features.ndim != 2 or len(features) != batch:
        raise ModelMismatch(
            f"model: features(x) returned shape {list(features.shape)} for {batch} samples; return one vector "
            "per sample, shape [B, d]"
        )
    return features


def require_features(work: Work) -> None:
    """Refuse a module without named features, before anything is trained.

    Raises:
        ModelMismatch: `features` or `head` is missing, or forward(x) is something else than head(features(x)).
    """
    module, kind = work.module, work.plan.objective.kind
    missing = [name for name in ("features", "head") if not callable(getattr(module, name, None))]
    if missing:
        raise ModelMismatch(
            f"model: objective {kind!r} reads features, and the module has no {' and no '.join(missing)}. Give it a "
            "method features(x) -> [B, d] and a module head, such that forward(x) is head(features(x))"
        )
    inputs = next(work.samples.read([torch.zeros(1, dtype=torch.int64)], work.device))[0]
    with modes.evaluation(module), torch.no_grad():
        parts, whole = work.forward(inputs, True)[0], work.forward(inputs, False)[0]
    if whole.shape != parts.shape or not torch.allclose(whole, parts, rtol=1e-3, atol=1e-4, equal_nan=True):
        raise ModelMismatch(
            f"model: objective {kind!r} trains the head on features, and forward(x) is not head(features(x)); make "
            "forward return exactly that"
        )


@contextmanager
def statistics_kept(module: nn.Module, batch: int) -> Iterator[None]:
    """Let BatchNorm use its running statistics for a batch of one, for which it has no statistics of its own."""
    norms = [
        layer
        for layer in (module.modules() if batch == 1 else ())
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.training
    ]
    for layer in norms:
        layer.eval()
    try:
        yield
    finally:
        for layer in norms:
            layer.train()
