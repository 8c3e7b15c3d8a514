"""Population stability index between two periods, as a kind of task of fedassay."""
