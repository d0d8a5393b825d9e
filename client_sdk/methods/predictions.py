"""Methods that send predictions instead of weights: DS-FL (Itahara et al. 2021)."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from client_sdk import modes
from client_sdk.data import cut
from client_sdk.errors import UnexpectedAnswer
from client_sdk.methods.base import Method, Outcome, Work, implements, remembered
from client_sdk.objectives import ds_fl
from contract.local import DsFlObjective
from contract.nn import codec
from contract.nn.optim import make_optimizer
from contract.updates import PREDICTIONS, PUBLIC, TARGETS

OWN = "own."


@implements(DsFlObjective)
class DsFl(Method):
    """Go on from this device's own model: imitate the server's targets, train on the own labels, predict.

    A device that takes part for the first time, or has lost its model, starts from the model as it was sent. Targets
    are those of the last round that was fused; before there was one, there are none to imitate.
    """

    takes_several = False

    @classmethod
    def goes_on(cls, module: nn.Module, memory: Mapping[str, Tensor]) -> bool:
        """Whether the device's own model is in its memory."""
        return remembered(codec.unwrap(module).state_dict(), memory, OWN) is not None

    def __init__(self, options: DsFlObjective, work: Work):
        super().__init__(options, work)
        own, network = remembered(work.state(), work.memory, OWN), codec.unwrap(work.module)
        if own is not None:
            network.load_state_dict({**network.state_dict(), **own})
        assert work.samples.task is not None
        task = work.samples.task
        self._public = self._extra(PUBLIC, "inputs", task.input.shape)
        if self._public.is_floating_point():
            self._public = self._public.to(work.samples.dtype)
        self._targets = self._extra(TARGETS, TARGETS, [task.num_classes]) if TARGETS in work.extras else None
        if self._targets is not None and len(self._targets) != len(self._public):
            raise UnexpectedAnswer(
                f"extras.{TARGETS}: {len(self._targets)} targets for {len(self._public)} public samples; tell the "
                "operator"
            )

    def _extra(self, extra: str, tensor: str, shape: list[int]) -> Tensor:
        """Return a tensor [P, *shape] of a file that came with the assignment."""
        found = (self.work.extra(extra) or {}).get(tensor, torch.empty(0))
        if list(found.shape[1:]) != shape or not len(found):
            raise UnexpectedAnswer(
                f"extras.{extra}: tensor {tensor!r} has shape {list(found.shape)}, expected [P, "
                f"{', '.join(map(str, shape))}]; tell the operator"
            )
        return found

    def before(self, order: torch.Generator) -> None:
        """Learn the targets of the round before, with an optimiser of its own of the plan's kind."""
        if self._targets is None:
            return
        work, plan = self.work, self.work.plan
        optimizer = make_optimizer(plan.optimizer, list(work.parameters.values()))
        for _ in range(self.options.imitation_epochs):
            for rows in cut(torch.randperm(len(self._public), generator=order), plan.batch_size):
                rows = rows.to(work.device)
                optimizer.zero_grad()
                with work.passes(len(rows)):
                    loss = ds_fl.imitation(self._logits(rows), self._targets[rows])
                    loss.backward()  # type: ignore[no-untyped-call]
                if plan.clip_norm is not None:
                    torch.nn.utils.clip_grad_norm_(list(work.parameters.values()), plan.clip_norm)
                optimizer.step()

    def after(self, steps: int) -> Outcome:
        """Send the probabilities [P, C] of the trained model, and keep the model."""
        module = self.work.module
        with modes.evaluation(module), torch.no_grad():
            sent = torch.cat(list(self._predicted()))
        own = {OWN + name: value for name, value in self.work.state().items()}
        return Outcome(tensors={PREDICTIONS: sent}, memory=own)

    def _predicted(self) -> Iterator[Tensor]:
        everything = torch.arange(len(self._public), device=self.work.device)
        for rows in torch.split(everything, self.work.plan.batch_size):
            self.work.on_pass()
            yield ds_fl.predictions(self._logits(rows).cpu())  # on the CPU: it counts in float64, which MPS has not

    def _logits(self, rows: Tensor) -> Tensor:
        return self.work.logits(self.work.module(self._public[rows]), len(rows), "public samples")
