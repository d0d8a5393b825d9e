"""The digests of every file that rounds make, for every recipe and every choice: what a rewrite may not change."""
