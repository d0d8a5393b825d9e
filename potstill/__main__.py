"""`python -m potstill` is the same as `potstill`."""

from potstill.cli import main

main()
