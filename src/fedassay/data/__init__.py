"""Clients with validated rows that can be read again and again, from whatever data the user has.

Reading order: `sources` (what can be opened), `schema` (what a column must hold), `scan` (one validating
pass), `federation` (the clients of a simulation), then what a client does to its rows before anything is
measured: `selection` (fit and held-out parts, a largest number of rows). `check` reports everything
that is wrong with a file. Nothing here knows tasks, trust models or runtimes.
"""
