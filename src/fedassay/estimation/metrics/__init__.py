"""Metrics of a binary classifier: one module for each, with its record and its estimator.

A module is found by its name: `recall` has the record `RECALL`. It imports no arrays when it is loaded; estimators that
need them import them when they are called, or stand in modules such as `ranking`, which the record names.
"""
