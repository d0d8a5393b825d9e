"""Drivers that put an installation under strain, and what tests share with them; no part of the distribution."""
