"""A device that uploads by hand, for tests of resumable uploads."""

import pytest

from tests.service.world import Fed, World

from .sending import Sender


@pytest.fixture
def fed(world: World) -> Fed:
    return world.running(["a", "b"])


@pytest.fixture
def sender(world: World, fed: Fed) -> Sender:
    return Sender(world, fed.devices["a"].token)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases are renewed, and HEAD looks, every moment."""
    monkeypatch.setattr("service.api.lease.RENEW_SECONDS", 0.02)
    monkeypatch.setattr("service.api.routes.uploads._POLL_SECONDS", 0.02)
