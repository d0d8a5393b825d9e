"""The SDK's public face, and what importing it costs."""

import subprocess
import sys

import pytest

import client_sdk


def test_public_names_are_pinned() -> None:
    assert sorted(client_sdk.__all__) == [
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
    assert all(getattr(client_sdk, name) is not None for name in client_sdk.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = client_sdk.nothing


def test_importing_the_package_does_not_load_torch() -> None:
    code = "import sys, client_sdk; client_sdk.OperatorClient('http://x'); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
