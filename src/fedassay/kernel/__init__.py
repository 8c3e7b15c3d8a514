"""The kernel: a coordinator drives exchanges, clients and helpers answer them, and both remember their messages."""
