"""First models that are files as an operator gave them, of networks that cannot be built here. numpy only."""

import shutil
from collections.abc import Callable
from pathlib import Path

from contract.tensors import check_file
from worker.pipeline.phases import Phases
from worker.specs import InitializeSpec, JobResult, Progress


def take(weights: Path, target: Path) -> None:
    """Copy an imported file as it is, once it is checked."""
    check_file(weights)
    shutil.copyfile(weights, target)


def take_all(spec: InitializeSpec, report: Callable[[Progress], None]) -> JobResult:
    """Do what `stages.initialize` does, where no network `needs_networks`."""
    phases, models = Phases(report), {}
    with phases.phase("initialize", of=len(spec.prototypes)):
        for index, each in enumerate(spec.prototypes):
            assert each.network.weights is not None
            models[each.name] = spec.output_dir / f"model-{index}.safetensors"
            take(each.network.weights, models[each.name])
            phases.step(index + 1)
    return JobResult(models=models, metrics={"networks": {}, "seconds": phases.seconds}, device="cpu")
