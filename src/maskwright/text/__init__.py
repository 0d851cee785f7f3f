"""From files to token ids and labelled examples, without torch.

Read in this order: `corpus/` (files to checked documents), `tokenizer/`, `store/` (tokens of a
corpus on disk, and rows of them), `tables/` (labelled files to examples), `curate/` (raw text to a
corpus for pretraining).
"""
