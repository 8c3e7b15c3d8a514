"""Empirical checks of what is claimed: lower bounds of epsilon, and the coverage of intervals."""
