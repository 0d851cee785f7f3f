"""A model asked: by ids at the bottom, by texts at the top.

Read `prepared` (the network laid out for answering), `batches` (which rows go together) and
`engine` (rows of ids in, float32 out); `prepared_writer`, `decode` and `beam` write. On these
stand `texts` (fill masks, generate, log-likelihood of an opened `Model`), `fill_mask`,
`pseudo_likelihood`, `held_out_loss`, `scores` (heads) and `encoded` (ids and their batches).
"""
