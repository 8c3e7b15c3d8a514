"""Experiments on real data: the scripts behind the pages in docs/experiments."""
