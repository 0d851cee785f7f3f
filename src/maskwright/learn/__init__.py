"""Training: pretraining by recipes and fine-tuning on labelled rows.

Read in this order: `train/` (the loop, optimizers), `recipes/`, `pretrain/`, `tasks/` (a file for
each task type), `finetune/`.
"""
