"""Estimators for released counts: pure functions of arrays with the law of their noise.

A summary makes an `Evidence`; every estimator here takes one. Nothing here reads rows, asks a query or knows a task.
"""
