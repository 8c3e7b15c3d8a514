"""fedassay: trust a model on data you cannot see."""

__version__ = "0.1.0"
