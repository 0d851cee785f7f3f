"""Inference, on token ids at the bottom and on texts at the top.

Read `blocks` (products, norms and sublayers for inference), `prepared` (the network built from
them), `batches` (batch sizes) and `scores` (states of rows, and scores of heads). `growing_rows`,
`generation` and `beam` generate ids, `text_generation` texts. `fill_mask`, `likelihood`,
`held_out_loss` and `encoded` (tokenized examples and their batches) are built on these.
"""
