"""The trust model `shuffle`: every message is private by itself, and a second server mixes them."""
