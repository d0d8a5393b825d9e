"""What every kind of a device's work uses."""

from dataclasses import dataclass
from pathlib import Path

import torch

from client_sdk import documents
from client_sdk.client import Client
from client_sdk.data import Samples
from client_sdk.own_training import OwnTraining
from client_sdk.state import StateFolder
from contract.wire.federations import ModelRef


@dataclass(frozen=True)
class Resources:
    """The service, the device's folder, its data, the torch device that computes; what trains instead of our loop."""

    client: Client
    folder: StateFolder
    samples: Samples
    device: torch.device
    own: OwnTraining | None = None

    def have(self, *architectures: str, weights: bool = False) -> None:
        """See that networks can be built here by their names; see `documents.have`."""
        for each in architectures:
            documents.have(self.client, self.folder.path, each, weights=weights)

    def download(self, model: ModelRef) -> Path:
        """Return the file of a model that an assignment names; one that is in the folder is not fetched again."""
        return self.client.download(model, self.folder.model(model.digest))
