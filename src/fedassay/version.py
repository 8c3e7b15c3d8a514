"""The version of fedassay, in one place."""

VERSION = "0.1.0"
