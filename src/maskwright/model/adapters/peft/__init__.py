"""Adapter folders in the form of the `peft` library."""
