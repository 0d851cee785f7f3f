"""From a recipe to a pretrained model, resumable to the bit.

Read `run` (begin and resume), `session` (one process of it), `prepare` (text to stores), `rows`,
`build`, `hooks` (what happens between steps), `checkpoints`. `continued_pretraining` begins with a
model that is there.
"""
