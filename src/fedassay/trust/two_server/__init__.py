"""The trust model `two-server`: two servers that do not collude, each with one half of every row."""
