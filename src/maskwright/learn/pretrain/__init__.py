"""From a recipe to a pretrained model, resumable to the bit.

Read `run` (start and resume), `session` (what one process of a run holds), `prepare` (text to
stores), `rows`, `build`, `hooks` (what happens between steps), `checkpoints`.
`continued_pretraining` starts from an existing model.
"""
