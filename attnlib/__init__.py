"""Executable checks of the theory of softmax attention."""

__version__ = "0.2.0"
