"""The numerical heart: pure functions, a file per part of a recipe."""
