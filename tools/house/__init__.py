"""The measures of the house, in one table: what is reached by tests only, what a rule touches, arrows, sizes, names."""
