"""Grids of experiments: every combination of what varies, cell by cell, each kept as soon as it is done.

`grid` says which cells there are, `course` runs them, `records` keeps each one, `tables` and `pictures` tell of all.
"""
