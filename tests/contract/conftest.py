"""What tests of the contract share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contract.tensors import write_file

Write = Callable[..., bytes]
"""(arrays, metadata) -> the bytes of a file."""


@pytest.fixture
def make(tmp_path: Path) -> Write:
    """Return a function that gives the bytes of a written file."""

    def write(arrays: dict[str, Any], metadata: dict[str, str] | None = None) -> bytes:
        write_file(tmp_path / "made.safetensors", arrays, metadata)
        return (tmp_path / "made.safetensors").read_bytes()

    return write
