"""Command line, supervisor and demo: where the parts are put together. Nothing imports this package."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("potstill")
except PackageNotFoundError:  # a checkout that was not installed
    __version__ = "0+unknown"
