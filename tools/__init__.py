"""Drivers that put an installation under strain, measures of the code, and what tests share; not distributed."""
