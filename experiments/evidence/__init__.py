"""Experiments that show the papers' claims through the real service."""
