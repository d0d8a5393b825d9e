"""What measures Potstill, and is no part of its distribution: the papers' claims with their bars, figures of speed."""
