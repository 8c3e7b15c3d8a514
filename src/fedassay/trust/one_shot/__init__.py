"""Secure sums in two legs: every client speaks once, members answer once on one set."""
