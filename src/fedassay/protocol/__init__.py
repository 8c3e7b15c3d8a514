"""What everything speaks: queries, released values, noise, settings; messages, results, files, parameters and cards."""
