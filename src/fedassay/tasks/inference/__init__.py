"""Regression coefficients with errors that can be trusted: online, from rounds, and exactly, from sums."""
