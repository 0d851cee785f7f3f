"""Curation steps that need a model."""
