"""A model asked: by ids at the bottom, by texts at the top.

Read `texts` (fill masks, generate, log-likelihood of an opened `Model`), then what stands below:
`decode` and `beam` (generation), `fill_mask`, `pseudo_likelihood`, `held_out_loss`, `scores`
(heads) and `encoded` (ids and the batches they make).
"""
