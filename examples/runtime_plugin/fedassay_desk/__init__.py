"""Two runtimes for fedassay: simulated clients some of whom are lost, and sites whose files lie on one machine."""
