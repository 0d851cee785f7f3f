"""Inference, on token ids at the bottom and on texts at the top.

Read `blocks` (products, norms and sublayers for inference), `prepared` (the network built from
them), `batches` (batch sizes) and `engine` (rows of ids in, hidden states out). `growing_rows`,
`generation` and `beam` generate ids, `text_generation` texts. `fill_mask`, `likelihood`,
`held_out_loss`, `scores` (of heads) and `encoded` (tokenized examples and their batches) are built
on these.
"""
