"""The heart: a coordinator drives exchanges, clients and helpers answer them, and both remember what they said."""
