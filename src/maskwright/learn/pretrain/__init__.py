"""From a recipe to a pretrained model, resumable to the bit.

Read `run` (start, resume, report), `prepare` (text to stores), `session` (what one process of a run
holds), `build`, `rows`, `hooks` (what happens between steps), `checkpoints`.
`continued_pretraining` starts from an existing model; `head_first` trains a new head of it.
"""
