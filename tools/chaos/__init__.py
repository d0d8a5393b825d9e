"""Random moments at which a part of a running installation is killed; `python -m tools.chaos`."""
