"""Maskwright: text of your own to a language Transformer of your own."""

__version__ = "0.1.0"
