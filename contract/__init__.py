"""What the service, its workers and the devices agree on."""

__version__ = "0.1.0"
