"""The places that a command line names, as what writes there."""

from pathlib import Path

from contract.installation import install
from potstill.console import CliError
from potstill.tracking.runs import Sink


def sinks(tensorboard: Path | None, mlflow: str | None) -> list[Sink]:
    """Return the places that are named.

    Raises:
        CliError: what they need is not installed, or the place is none.
    """
    found: list[Sink] = []
    try:
        if tensorboard is not None:
            from potstill.tracking.board import Board

            found.append(Board(tensorboard))
        if mlflow is not None:
            from potstill.tracking.flow import Flow

            found.append(Flow(mlflow))
    except ModuleNotFoundError as error:
        raise CliError(f"{error.name} is not installed; {install('tracking')}") from error
    return found
