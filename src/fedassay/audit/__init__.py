"""Empirical checks of claims: lower bounds of epsilon, and the coverage of intervals."""
