"""A model asked: by ids at the bottom, by texts at the top.

Read `blocks` (products, norms, halves of layers, laid out for answering), `prepared` (the network
made of them), `batches` (how many texts go together) and `engine` (rows of ids in, states out);
`growing_rows`, `decode` and `beam` write. On these stand `fill_mask`,
`likelihood`, `held_out_loss`, `scores` (heads) and `encoded` (ids and their batches).
"""
