"""Linear, logistic and other smooth regressions: what clients say about a step, an optimum, its spread."""
