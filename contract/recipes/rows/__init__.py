"""The rows of the table of presets, a file per family."""
