"""Command groups, a file each."""
