"""What a network learns: an objective a file, each with its `SPEC`, `Options` and `build`.

Read `parts/spec` and `parts/objective` (the contract), then `masked`, `causal`, `hybrid`; of two
stacks `span_corruption` and `denoising`. `supervised` is what fine-tuning trains.
"""
