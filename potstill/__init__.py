"""Command line, supervisor and demo: where the parts are put together. Nothing imports this package."""
