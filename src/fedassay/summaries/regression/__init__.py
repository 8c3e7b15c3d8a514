"""Summaries of linear, logistic and other smooth regressions: answers about a step, an optimum, its spread."""
