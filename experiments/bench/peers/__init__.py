"""The other side of comparisons with frameworks, run by environments of their own; nothing here imports Potstill."""
