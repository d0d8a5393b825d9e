"""Federations in one process, without HTTP and without a database: the worker's own pipeline and the SDK's own devices.

`engine.Simulation` runs one recipe; `experiment` compares several on the same data. Import the modules one by one: they
need torch, and the command line starts without it.
"""
