"""Figures of speed and memory, each beside the least that does the same work: `make bench`; FedGO on a GPU."""
