"""The in-process runtime: a simulation, in two honest modes.

*Faithful*: every client computes, noises and hides its own message and everything passes through serialised
bytes; up to thousands of clients. *Aggregate*: the exact total is computed from all rows and the trust model
draws the release from the law that the protocol gives it; millions of one-row clients. A test shows that both
have the same distribution; the result names the mode that ran.
"""
