"""Ensembles away from the service: a downloaded one predicts here, by the worker's own program."""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contract.bodies import stored
from contract.bundles import ENSEMBLE
from contract.ensembles import why_unscored
from contract.labels import class_numbers
from contract.tensors import TensorError, TensorFile, check_file, write_file
from contract.wire.ensembles import EnsembleDocument, PredictionDocument
from contract.wire.federations import Task
from potstill.console import CliError
from potstill.replay import bundles
from potstill.replay.computing import Computers
from worker.building import predict

_REMEDY = "make one with: potstill round ensemble FEDERATION:NUMBER FILE"
_NONE = "sha256-" + "0" * 64
Report = Callable[[str, int, int], None]
"""(phase, step, of)"""


@dataclass(frozen=True)
class Predictions:
    """What an ensemble says of N samples.

    Attributes:
        logits: float32 [N, C]; their softmax is the probabilities.
        predicted: int64 [N], the class of the first largest logit.
        accuracy: share of the labels that were predicted, where there are labels.
    """

    logits: NDArray[np.float32]
    predicted: NDArray[np.int64]
    accuracy: float | None = None


class LoadedEnsemble:
    """A downloaded ensemble, ready to predict; `with` puts its files away at the end."""

    def __init__(self, path: Path | str, device: str = "cpu", threads: int = 0):
        self._folder = Path(tempfile.mkdtemp(prefix="potstill-ensemble-"))
        self._computers = Computers()
        self._terms = {"device": device, "threads": threads}
        try:
            text = bundles.read(Path(path), self._folder, ENSEMBLE, _REMEDY)
            self.document = _parsed(text, path)
            unscored = why_unscored(self.document)
            if unscored is not None:
                raise CliError(f"{path} cannot predict: {unscored}")
            gone = [each for each in self.document.digests() if not bundles.place(self._folder, each).exists()]
            if gone:
                raise CliError(f"{path}: {len(gone)} files of it are missing; {_REMEDY}")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the computing process and remove the unpacked files."""
        self._computers.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> "LoadedEnsemble":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def predict(self, inputs: NDArray[Any], labels: NDArray[np.int64] | None = None) -> Predictions:
        """Predict inputs [N, ...], float32 or int64 as the task has it.

        Args:
            inputs: the samples.
            labels: their classes [N], to be measured by.

        Raises:
            CliError: the data do not fit the task, or a network gives NaN.
        """
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            dataset = Path(folder) / "dataset.safetensors"
            write_file(dataset, {"inputs": inputs} if labels is None else {"inputs": inputs, "labels": labels})
            made, accuracy = self.predict_file(dataset, Path(folder))
            with TensorFile(made) as file:
                return Predictions(file.read("logits"), file.read("predicted"), accuracy)

    def predict_file(self, dataset: Path, folder: Path, report: Report = lambda *_: None) -> tuple[Path, float | None]:
        """Predict a data set's safetensors file; return the file of predictions in `folder`, and the accuracy.

        Raises:
            CliError: as `predict`.
        """
        _check_data(dataset, self.document.task)
        document = PredictionDocument(task=self.document.task, dataset=_NONE, ensemble=self.document)
        spec = predict(document, dataset.absolute(), folder, lambda digest: bundles.place(self._folder, digest))
        made = self._computers.compute(spec.model_dump(mode="json"), self._terms, None, report)
        return Path(made["models"]["predictions"]), made["metrics"].get("accuracy")


def _check_data(dataset: Path, task: Task) -> None:
    """Refuse what the service would not have registered, or not have predicted.

    Raises:
        CliError: values that are not finite, or labels of other classes.
    """
    try:
        there = check_file(dataset).tensors
    except TensorError as error:
        raise CliError(f"the data: {error.detail}") from error
    if "inputs" not in there or "labels" not in there:
        return
    with TensorFile(dataset) as file:
        try:
            labels = class_numbers(file.read("labels"), there["inputs"].shape[0])
        except ValueError as error:
            raise CliError(f"the data: {error}") from error
    if len(labels) and labels.max() >= task.num_classes:
        most = f"the task has {task.num_classes} classes"
        raise CliError(f"the data: label {int(labels.argmax())} is {labels.max()}, and {most}")


def _parsed(text: str, path: Path | str) -> EnsembleDocument:
    try:
        return stored(EnsembleDocument, text)
    except ValueError as error:
        raise CliError(f"{path}: its {ENSEMBLE} cannot be read: {error}") from error


def load_ensemble(path: Path | str, *, device: str = "cpu", threads: int = 0) -> LoadedEnsemble:
    """Return a downloaded ensemble (`GET /v1/rounds/{id}/ensemble/bundle`), for use in a `with` block.

    Args:
        path: the tar file. It decides no path here, and what does not match its digest is refused.
        device: `cpu` or `cuda`.
        threads: of the CPU; 0 for torch's own choice. With the service's, and its kind of device, the bits are its own.

    Raises:
        CliError: it is no such file, or a damaged one.
    """
    return LoadedEnsemble(path, device, threads)
