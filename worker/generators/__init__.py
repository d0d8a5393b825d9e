"""How generators are trained."""
