"""The end-to-end tests' installation, for single breaks."""

from tests.e2e.conftest import deployment

__all__ = ["deployment"]
