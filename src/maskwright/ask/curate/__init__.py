"""Curation with models: steps that score texts by a trained model, and these scores."""
