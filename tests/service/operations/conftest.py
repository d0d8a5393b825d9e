"""What tests of operations share."""

import sys
from datetime import timedelta

import pytest

from service.operations.ledger import clock
from tests.service.conftest import Move


@pytest.fixture
def move(monkeypatch: pytest.MonkeyPatch) -> Move:
    """Return what puts the clock of all operations so many seconds ahead of the real one; there it stands still."""

    def forward(seconds: float) -> None:
        moment = clock.now() + timedelta(seconds=seconds)
        for name, module in list(sys.modules.items()):
            if name.startswith("service.operations.") and module is not clock and hasattr(module, "now"):
                monkeypatch.setattr(module, "now", lambda: moment)

    return forward
