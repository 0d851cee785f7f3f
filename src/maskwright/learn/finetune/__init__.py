"""From a pretrained model and labelled rows to a model of the task.

Read `command` (what a user asks for), `recipe` (all settings), `run` (seeds), `learner` (a base
with a head), `tune` (the training of one seed), `result` (what is left behind). `label_curve` is
the study of how many labels are worth what.
"""
