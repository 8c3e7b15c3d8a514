"""Metrics of a binary classifier: their records and estimators, by what they are about.

A record is found by being in one of these modules. They import no arrays when they are loaded; estimators that need
them import them when they are called, or stand in modules such as `estimation.ranking`, which the record names.
"""
