"""Noisy distribution functions made non-decreasing again, at the least change of the counts."""
