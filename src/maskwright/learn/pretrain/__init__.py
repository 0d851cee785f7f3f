"""From a recipe to a pretrained model, resumable to the bit.

Read `run` (start, resume, report), `prepare` (text to stores), `session` (what one process of a run
holds, and what happens between steps), `build`, `rows`, `checkpoints`. `continued_pretraining`
starts from an existing model.
"""
