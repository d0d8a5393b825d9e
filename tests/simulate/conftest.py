from tests.e2e.conftest import deployment

__all__ = ["deployment"]
