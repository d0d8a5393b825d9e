"""SCAFFOLD on the device: every step is corrected by c - c_i, and c_i stays here (Karimireddy et al. 2020, Alg. 1)."""

from collections.abc import Mapping

import torch
from torch import Tensor

from client_sdk.errors import UnexpectedAnswer
from client_sdk.methods.base import Method, Outcome, Work, implements
from client_sdk.objectives import scaffold
from contract import updates
from contract.local import ScaffoldObjective
from contract.nn import codec
from contract.seeds import derive_seed


@implements(ScaffoldObjective)
class Scaffold(Method):
    """Control variates by name of the parameter, as float32; zeros for parameters that are not trained.

    A device without its c_i starts at zeros. Unless it takes part for the first time, it says so with its update: the
    server's c still holds a share of the lost one.
    """

    @classmethod
    def reads_samples(cls, options: ScaffoldObjective) -> bool:
        """Whether the gradient is taken over all samples at the model as it was sent."""
        return options.option == 1

    def asks(self) -> frozenset[str]:
        """Return what `Method.asks` does; option 2 reads the gradient off the steps of the plan's optimiser."""
        return super().asks() | ({"optimizer"} if self.options.option == 2 else set())

    def __init__(self, options: ScaffoldObjective, work: Work):
        super().__init__(options, work)
        everything = dict(codec.unwrap(work.module).named_parameters(remove_duplicate=False))
        sent = {name: everything[name] for name in updates.parameters(work.base) if name in everything}
        self._trained = {name: value for name, value in sent.items() if value.requires_grad}
        self._sent = {name: value.detach().float().clone() for name, value in self._trained.items()}
        self._shapes = {name: work.base.tensors[name].shape for name in updates.parameters(work.base)}
        self._server = self._server_control()
        own = self._own_control()
        self._reset = own is None and not work.first
        self._own = own if own is not None else {name: torch.zeros_like(value) for name, value in self._server.items()}
        self._gradient = self._gradient_of_data() if options.option == 1 else {}

    def penalty(self) -> Tensor:
        """Return <c - c_i, w>, by whose gradient g_i(y) becomes g_i(y) - c_i + c."""
        return scaffold.correction(self.work.module, self._server, self._own, self.work.kept)

    def after(self, steps: int) -> Outcome:
        """Send dc = c_i+ - c_i and keep c_i+ for the next round."""
        lr = self.work.plan.optimizer.lr
        new, delta = dict(self._own), {name: torch.zeros_like(value) for name, value in self._own.items()}
        for name, parameter in self._trained.items():
            gradient = self._gradient.get(name)
            found = scaffold.new_variate(  # on the CPU: it counts in float64, which MPS has not
                self._sent[name].cpu(),
                parameter.detach().float().cpu(),
                self._server[name].cpu(),
                self._own[name].cpu(),
                lr,
                steps,
                self.options.option,
                None if gradient is None else gradient.cpu(),
            )
            new[name], delta[name] = found.new, found.delta_c
        return Outcome(
            tensors={updates.CONTROL + name: value for name, value in delta.items()},
            memory={updates.CONTROL + name: value for name, value in new.items()},
            control_reset=self._reset,
        )

    def _server_control(self) -> dict[str, Tensor]:
        """Return c, zeros before the first round is over."""
        found = self.work.extra(updates.CONTROL_EXTRA)
        if found is None:
            return {name: torch.zeros(shape, device=self.work.device) for name, shape in self._shapes.items()}
        control = self._fitting(found, "")
        if control is None:
            raise UnexpectedAnswer("extras.control: its tensors are not the model's parameters; tell the operator")
        return control

    def _own_control(self) -> dict[str, Tensor] | None:
        return self._fitting(self.work.memory, updates.CONTROL)

    def _fitting(self, tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor] | None:
        """Return one tensor per parameter, or None if any is missing or has another shape."""
        found = {name: tensors[prefix + name] for name in self._shapes if prefix + name in tensors}
        if any(name not in found or found[name].shape != shape for name, shape in self._shapes.items()):
            return None
        return {name: value.to(self.work.device, torch.float32) for name, value in found.items()}

    def _gradient_of_data(self) -> dict[str, Tensor]:
        """Return the gradient at the model as it was sent, over all local data (option I); buffers stay as they are."""
        work, total = self.work, len(self.work.samples)
        buffers = {name: value.clone() for name, value in work.module.named_buffers()}
        order = torch.Generator().manual_seed(derive_seed(work.seed, "control"))
        work.module.zero_grad(set_to_none=True)
        for inputs, labels in work.samples.batches(work.plan.batch_size, order, work.device):
            with work.passes(len(labels)):
                loss = work.own_loss(work.forward(inputs, False, scaled=False)[0], labels) * (len(labels) / total)
                loss.backward()  # type: ignore[no-untyped-call]
        gradients = {
            name: torch.zeros_like(value, dtype=torch.float32) if value.grad is None else value.grad.float().clone()
            for name, value in self._trained.items()
        }
        work.module.zero_grad(set_to_none=True)
        with torch.no_grad():
            for name, value in work.module.named_buffers():
                value.copy_(buffers[name])
        return gradients
