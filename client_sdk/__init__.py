"""Potstill on a device and for operators.

>>> from client_sdk import train_and_push                                     # doctest: +SKIP
>>> train_and_push(url, (x, y), federation="fed_…", join_token="pst_join_…")  # doctest: +SKIP

Importing this package does not load torch; `train_and_push` does, when it is first used.
"""

from typing import TYPE_CHECKING, Any

import client_sdk.contract_first  # noqa: F401  # first: all below import the contract
from client_sdk.client import Client
from client_sdk.connection import Connection
from client_sdk.errors import (
    ApiError,
    DatasetError,
    FederationEnded,
    ModelMismatch,
    PotstillError,
    StateError,
    TrainingError,
    TransportError,
    UnexpectedAnswer,
    UpdateRefused,
    UsageError,
)
from client_sdk.operator import OperatorClient
from client_sdk.reports import RoundReport, RunReport

if TYPE_CHECKING:
    from client_sdk.runner import train_and_push

__all__ = [
    "ApiError",
    "Client",
    "Connection",
    "DatasetError",
    "FederationEnded",
    "ModelMismatch",
    "OperatorClient",
    "PotstillError",
    "RoundReport",
    "RunReport",
    "StateError",
    "TrainingError",
    "TransportError",
    "UnexpectedAnswer",
    "UpdateRefused",
    "UsageError",
    "train_and_push",
]


def __getattr__(name: str) -> Any:
    if name == "train_and_push":
        try:
            from client_sdk.runner import train_and_push
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            from contract.installation import install

            raise ModuleNotFoundError(f"train_and_push needs PyTorch: {install('client')}", name="torch") from error
        return train_and_push
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
