"""Runs in MLflow: an experiment a group, a metric a figure, whose step is the round."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from potstill.console import CliError
from potstill.tracking.runs import Point, TrackedRun

_TAG = "potstill.run"
_LONGEST, _METRICS, _PARAMETERS = 6000, 1000, 100  # what MLflow takes: characters of a value, and of each in a batch
Item = TypeVar("Item")


@dataclass
class _Open:
    id: str
    written: set[tuple[str, int]]


class Flow:
    """A tracking server or store. A run is found again by a tag; its metrics are written once a step.

    Args:
        uri: as MLFLOW_TRACKING_URI: `http://host:5000`, `sqlite:///mlflow.db`, …
    """

    def __init__(self, uri: str):
        self._uri = uri
        with self._plainly():
            self._client = MlflowClient(tracking_uri=uri)
        self._runs: dict[str, _Open] = {}

    def write(self, run: TrackedRun, points: Iterable[Point]) -> int:
        """Write what is not there; return how many rounds had something new.

        Raises:
            CliError: MLflow refuses, or cannot be reached.
        """
        with self._plainly():
            opened = self._opened(run)
            fresh = [
                Metric(name, value, round(1000 * (point.seconds or time.time())), point.round)
                for point in points
                for name, value in point.figures.items()
                if (name, point.round) not in opened.written
            ]
            for some in _batches(fresh, _METRICS):
                self._client.log_batch(opened.id, metrics=some)
            opened.written |= {(each.key, each.step) for each in fresh}
            return len({each.step for each in fresh})

    def end(self, run: TrackedRun, *, failed: bool = False) -> None:
        """Say that nothing more will come of a run."""
        with self._plainly():
            self._client.set_terminated(self._opened(run).id, "FAILED" if failed else "FINISHED")

    def _opened(self, run: TrackedRun) -> _Open:
        if run.key not in self._runs:
            known = self._client.get_experiment_by_name(run.group)
            experiment = self._client.create_experiment(run.group) if known is None else known.experiment_id
            key = run.key.replace("'", "")
            found = self._client.search_runs([experiment], f"tags.`{_TAG}` = '{key}'")
            made = found[0] if found else self._client.create_run(experiment, tags={_TAG: key}, run_name=run.name)
            there, id_ = made.data, made.info.run_id
            fresh = [
                Param(name, str(value)[:_LONGEST]) for name, value in run.parameters.items() if name not in there.params
            ]
            for some in _batches(fresh, _PARAMETERS):
                self._client.log_batch(id_, params=some)
            histories = (self._client.get_metric_history(id_, name) for name in there.metrics)
            self._runs[run.key] = _Open(id_, {(each.key, each.step) for history in histories for each in history})
        return self._runs[run.key]

    @contextmanager
    def _plainly(self) -> Iterator[None]:
        try:
            yield
        except MlflowException as error:
            raise CliError(f"MLflow at {self._uri}: {str(error).splitlines()[0]}") from error


def _batches(items: Sequence[Item], size: int) -> Iterator[list[Item]]:
    left = iter(items)
    while some := list(islice(left, size)):
        yield some
