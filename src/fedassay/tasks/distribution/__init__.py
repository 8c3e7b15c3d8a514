"""Private distribution functions: noisy prefix counts of any scalar, and what can be read from them."""
