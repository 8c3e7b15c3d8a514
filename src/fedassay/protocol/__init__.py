"""Vocabulary of all packages: queries, releases, noise, settings; messages, results, files, parameters and cards."""
