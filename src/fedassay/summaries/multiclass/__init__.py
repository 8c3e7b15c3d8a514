"""Summaries of models with several classes: what clients may measure from logits, and the maps that calibrate them."""
