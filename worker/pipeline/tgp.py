"""FedTGP on the server: prototypes of the classes, trained on the clients' class means (Zhang et al. 2024)."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from contract.local import SENT_PROTOTYPES, TGP, FedTgpObjective
from contract.nn.codec import load_state, save_state
from contract.nn.seeding import global_seed
from contract.seeds import derive_seed
from contract.tensors import TensorFile, write_file
from contract.updates import CLASS_COUNTS, CLASS_MEANS, PROTOTYPES
from worker.parts.fedtgp import Prototypes, contrast, margin
from worker.pipeline.job import Round
from worker.specs import JobFailure


@dataclass(frozen=True)
class Means:
    """What the clients sent: P class means [P, d], their classes [P], and the same by client for the margin."""

    values: NDArray[np.float32]
    labels: NDArray[np.int64]
    by_client: list[dict[int, NDArray[np.float32]]]


def read_means(job: Round) -> Means:
    """Return the class means of all participants, in the order of their names; classes without samples are left out.

    Raises:
        JobFailure: schema_mismatch when the prototypes have features of different sizes, non_finite.
    """
    by_client: list[dict[int, NDArray[np.float32]]] = []
    width = None
    for update in job.participants:
        with TensorFile(update.sent) as file:
            means, counts = file.read(CLASS_MEANS), file.read(CLASS_COUNTS)
        width = width or means.shape[1]
        if means.shape[1] != width:
            raise JobFailure(
                "schema_mismatch",
                f"update of {update.client!r}: features of size {means.shape[1]}, others have {width}; FedTGP needs "
                "prototypes of one size, such as networks with common_head",
            )
        mine = {int(label): means[label] for label in np.flatnonzero(counts > 0)}
        if not all(np.isfinite(mean).all() for mean in mine.values()):
            detail = f"update of {update.client!r}: a class mean has NaN or infinity"
            raise JobFailure("non_finite", detail, client=update.client)
        by_client.append(mine)
    rows = [(label, mean) for mine in by_client for label, mean in mine.items()]
    values = np.stack([mean for _, mean in rows]) if rows else np.empty((0, width or 0), np.float32)
    return Means(values, np.asarray([label for label, _ in rows], np.int64), by_client)


def train_prototypes(job: Round, plan: FedTgpObjective) -> dict[str, Path]:
    """Train the embedding net some epochs further and return the state: the net, and what it gives, [C, d].

    By SGD without momentum, as the authors' code.

    With class means of fewer than two classes there is no margin: nothing changes.

    Raises:
        JobFailure: as `read_means`; non_finite when training diverges.
    """
    spec, means = job.spec, read_means(job)
    if len(set(means.labels.tolist())) < 2:
        job.metrics["prototypes"] = {"margin": None, "means": len(means.labels)}
        return {}
    seed = derive_seed(spec.seed, "round", spec.round_index, "prototypes")
    with global_seed(derive_seed(spec.seed, "prototypes")):
        net = Prototypes(spec.task.num_classes, means.values.shape[1])
    if TGP.named() in job.state:
        load_state(net, job.state[TGP.named()])
    delta = margin(means.by_client, spec.task.num_classes, plan.margin).margin
    loss = _train(net, torch.from_numpy(means.values), torch.from_numpy(means.labels), delta, plan, seed)
    with torch.no_grad():
        made = net().numpy().astype(np.float32)
    if not np.isfinite(made).all():
        raise JobFailure("non_finite", "the class prototypes are no longer finite; look at the clients' features")
    job.metrics["prototypes"] = {"margin": delta, "means": len(means.labels), "loss": loss}
    net_file, sent = spec.output_dir / "tgp.safetensors", spec.output_dir / "prototypes.safetensors"
    save_state(net, net_file)
    write_file(sent, {PROTOTYPES: made})
    return {TGP.named(): net_file, SENT_PROTOTYPES.named(): sent}


def _train(net: Prototypes, means: Tensor, labels: Tensor, delta: float, plan: FedTgpObjective, seed: int) -> float:
    """Return the mean loss of the last epoch."""
    draw = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(net.parameters(), lr=plan.server_lr)
    last: list[Tensor] = []
    for _ in range(plan.server_epochs):
        order, last = torch.randperm(len(labels), generator=draw), []
        for start in range(0, len(labels), plan.server_batch_size):
            batch = order[start : start + plan.server_batch_size]
            loss = contrast(net(), means[batch], labels[batch], delta)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            last.append(loss.detach())
    return float(torch.stack(last).mean())
