"""Figures of speed and memory: of the service, and of rounds on a GPU."""
