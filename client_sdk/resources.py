"""What every kind of a device's work uses."""

from dataclasses import dataclass
from pathlib import Path

import torch

from client_sdk import documents
from client_sdk.client import Client
from client_sdk.data import Samples
from client_sdk.errors import DatasetError
from client_sdk.own_training import OwnTraining
from client_sdk.state import StateFolder
from client_sdk.wishes import PLAIN, Wishes
from contract.wire.federations import ModelRef, Task


@dataclass(frozen=True)
class Resources:
    """The service, the device's folder, its data, the torch device that computes.

    Attributes:
        own: what trains instead of our loop.
        wishes: what our loop does otherwise than the plan says.
        held_out: samples that are measured before and after each round.
    """

    client: Client
    folder: StateFolder
    samples: Samples
    device: torch.device
    own: OwnTraining | None = None
    wishes: Wishes = PLAIN
    held_out: Samples | None = None

    def check(self, task: Task) -> None:
        """Refuse samples that are not what a task asks for, of the device's own and of those that are measured.

        Raises:
            DatasetError: naming the field, the value and the remedy.
        """
        self.samples.check(task)
        if self.held_out is not None:
            try:
                self.held_out.check(task)
            except DatasetError as error:
                raise DatasetError("evaluate_on", str(error)) from error

    def have(self, *architectures: str, weights: bool = False) -> None:
        """See that networks can be built here by their names; see `documents.have`."""
        for each in architectures:
            documents.have(self.client, self.folder.path, each, weights=weights)

    def download(self, model: ModelRef) -> Path:
        """Return the file of a model that an assignment names; one that is in the folder is not fetched again."""
        return self.client.download(model, self.folder.model(model.digest))
