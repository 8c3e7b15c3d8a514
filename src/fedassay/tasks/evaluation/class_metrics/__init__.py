"""Metrics of a classifier with several classes: one module for each, found by its name like those of two classes.

Estimators are pure functions of a `ClassEvidence`.
"""
