"""Labels in shards: what networks say of a round's sets, asked by jobs of their own, for the round's job to read.

What a network says follows from its architecture and weights, the inputs, the program and the kind of machine. Their
digest names it; so whatever differs is not found, and the round's job asks that network itself. float32 as networks
give it, so that sums over teachers are the same to the bit, whoever asked.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from contract.recipes.parts import PAST
from contract.tensors import TensorFile, TensorWriter
from contract.wire.federations import Task
from worker.checkpoints import code_version, plain
from worker.parts.arrays import Float
from worker.pipeline.drawing import asked_sets, learnt
from worker.pipeline.job import Round
from worker.pipeline.networks import batch_of, build_network, check_shape, outputs
from worker.pipeline.updates import receive
from worker.specs import JobResult, LabelsSpec, NetworkFiles, NetworkRef, Progress


def part_of(samples: int, batch: int, part: int, parts: int) -> slice:
    """Return the rows of one of a set's parts: whole batches, so that a network sees what it would see of all of it.

    Args:
        samples: S.
        batch: samples that go through a network at once.
        part: from 0.
        parts: as equal as batches allow; with fewer batches some are empty.
    """
    batches = math.ceil(samples / batch)
    first, last = (batch * (batches * each // parts) for each in (part, part + 1))
    return slice(min(first, samples), min(last, samples))


class Names:
    """What names the outputs of a network for a set.

    Args:
        task: the federation's.
        device: torch device.
        networks: files of the networks that are documents, by architecture.
    """

    def __init__(self, task: Task, device: str, networks: Mapping[str, NetworkFiles]):
        gpu = device.startswith("cuda")
        machine = torch.cuda.get_device_name(device) if gpu else torch.backends.cpu.get_cpu_capability()
        self._networks = networks
        self._common = {
            "task": task.model_dump(mode="json"),
            "code": code_version(),
            "device": device.split(":", maxsplit=1)[0],
            "machine": machine,
            "threads": torch.get_num_threads(),
        }
        self._sets: dict[str, str] = {}

    def of(self, network: NetworkRef, name: str, inputs: Tensor) -> str:
        """Return a digest of all that a network's outputs for a set follow from.

        Args:
            network: with its weights.
            name: the set's; its inputs are looked at once.
            inputs: [S, ...].
        """
        if name not in self._sets:
            array = np.ascontiguousarray(inputs.numpy())
            said = hashlib.sha256(f"{array.dtype} {array.shape}".encode())
            said.update(array.reshape(-1).view(np.uint8).data)
            self._sets[name] = said.hexdigest()
        document = self._networks.get(network.architecture)
        files = [network.model_dump(), None if document is None else document.model_dump()]
        tree = self._common | {"files": plain(files), "inputs": self._sets[name]}
        return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()


@dataclass
class Shards:
    """What other jobs found networks to say.

    Attributes:
        found: digest of `Names` -> first row -> the file that has it, and how many rows.
        asked: networks that were looked up, and those of them that had to be asked here.
    """

    task: Task
    device: str
    names: Names
    found: Mapping[str, Mapping[int, tuple[Path, int]]]
    asked: set[str] = field(default_factory=set)
    here: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, job: Round) -> "Shards | None":
        """Return what was worked out for a round; None where it is a matter of one job."""
        if not job.spec.shards:
            return None
        names = Names(job.spec.task, job.device, job.spec.networks)
        return cls(job.spec.task, job.device, names, _index(job.spec.shards))

    def figures(self) -> dict[str, Any]:
        """Return how many teachers' networks were looked up, and how many were asked by the round's own job."""
        return {"teachers": len(self.asked), "here": len(self.here)}

    def outputs_of(self, network: NetworkRef, owner: str) -> Callable[[str, Tensor], Iterator[tuple[int, Float]]]:
        """Return a function that yields a network's outputs for a set, as `networks.outputs` does.

        The network is built where some of them were not found.
        """
        built: list[torch.nn.Module] = []

        def ask(inputs: Tensor, rows: slice) -> Iterator[tuple[int, Float]]:
            if not built:
                self.here.add(owner)
                built.append(build_network(network, self.task, self.device, owner=owner))
            batch = batch_of(self.task)
            yield from outputs(built[0], inputs, self.device, owner=owner, batch=batch, rows=rows)

        def outputs_for(name: str, inputs: Tensor) -> Iterator[tuple[int, Float]]:
            self.asked.add(owner)
            key = self.names.of(network, name, inputs)
            found, batch, start = self.found.get(key, {}), batch_of(self.task), 0
            while start < len(inputs):
                if start in found:
                    path, count = found[start]
                    yield from _read(path, f"{key}.{start}", start, batch)
                    start += count
                else:
                    last = min(start + batch, len(inputs))
                    yield from ask(inputs, slice(start, last))
                    start = last

        return outputs_for


def _index(paths: Sequence[Path]) -> dict[str, dict[int, tuple[Path, int]]]:
    found: dict[str, dict[int, tuple[Path, int]]] = {}
    for path in paths:
        with TensorFile(path) as file:
            for name, info in file.header.tensors.items():
                key, start = name.split(".")
                found.setdefault(key, {})[int(start)] = (path, info.shape[0])
    return found


def _read(path: Path, name: str, first: int, batch: int) -> Iterator[tuple[int, Float]]:
    """Yield (start, outputs float64) of one batch after another, as they were asked."""
    with TensorFile(path) as file:
        rows, *shape = file.info(name).shape
        width = math.prod(shape)
        for start in range(0, rows, batch):
            count = min(batch, rows - start)
            block = file.read_block(name, start * width, count * width).reshape(count, *shape)
            yield first + start, block.astype(np.float64)


def label_shard(spec: LabelsSpec, report: Callable[[Progress], None], device: str = "cpu") -> JobResult:
    """Ask some of a round's teachers and write what they say: tensors ``<digest>.<first row>`` F32 [rows, ...].

    Figures: `teachers`, `seconds` of asking them.

    Raises:
        JobFailure: as the round's job, which asks them itself then.
    """
    job = Round.begin(spec.round.model_copy(update={"networks": spec.networks}), report, device)
    job.spec.output_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    if job.spec.updates:
        receive(job)
    sets, batch = asked_sets(job, learnt(job)), batch_of(spec.round.task)
    names = Names(job.spec.task, device, spec.networks)
    rows = {name: part_of(len(inputs), batch, spec.part, spec.parts) for name, inputs in sets.items()}
    rows = {name: part for name, part in rows.items() if part.start < part.stop}
    shape, orders = tuple(job.spec.task.output_shape), []
    infos: dict[str, tuple[str, tuple[int, ...]]] = {}
    for owner, network in _asked(job):
        wanted = {f"{names.of(network, name, sets[name])}.{part.start}": name for name, part in rows.items()}
        orders.append((owner, network, {key: name for key, name in wanted.items() if key not in infos}))
        infos |= {key: ("F32", (rows[name].stop - rows[name].start, *shape)) for key, name in wanted.items()}
    target = spec.output_dir / "labels.safetensors"
    with job.phases.phase("label", of=len(orders)), TensorWriter(target, infos) as writer:
        for number, (owner, network, wanted) in enumerate(orders, start=1):
            module = build_network(network, job.spec.task, device, owner=owner)
            for key, name in wanted.items():
                for _, values in outputs(module, sets[name], device, owner=owner, batch=batch, rows=rows[name]):
                    check_shape(values, job.spec.task, owner)
                    writer.write(key, values.astype(np.float32))
            job.phases.step(number)
    metrics = {"teachers": len(orders), "seconds": job.phases.seconds["label"]}
    return JobResult(models={"labels": target} if infos else {}, metrics=metrics, device=device)


def _asked(job: Round) -> list[tuple[str, NetworkRef]]:
    """Return whose networks are asked here: clients', or those of the models of earlier rounds."""
    clients = [(f"update of {each.client!r}", job.network(each.prototype, each.model)) for each in job.participants]
    past = [
        (f"model {prototype.name!r} of round {index}", job.network(prototype.name, path))
        for prototype in job.spec.prototypes
        for index, path in job.history(PAST, prototype.name, len(job.state))
    ]
    return clients + past
