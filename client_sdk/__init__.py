"""Potstill on a device and for operators.

>>> from client_sdk import train_and_push                                     # doctest: +SKIP
>>> train_and_push(url, (x, y), federation="fed_…", join_token="pst_join_…")  # doctest: +SKIP

Importing this package does not load torch; `train_and_push` and `export_network` do, when they are first used.
"""

from importlib import import_module
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
    from client_sdk.entry import train_and_push
    from client_sdk.loops import LocalOutcome, LocalTask
    from client_sdk.networks import export_network

__all__ = [
    "ApiError",
    "Client",
    "Connection",
    "DatasetError",
    "FederationEnded",
    "LocalOutcome",
    "LocalTask",
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
    "export_network",
    "train_and_push",
]


_LAZY = {"LocalOutcome": "loops", "LocalTask": "loops", "export_network": "networks", "train_and_push": "entry"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"client_sdk.{_LAZY[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        from contract.installation import install

        raise ModuleNotFoundError(f"{name} needs PyTorch: {install('client')}", name="torch") from error
