"""A site's policy: its rules, the file they are written in, and the judgement of a request."""
