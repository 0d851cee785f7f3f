"""What a network learns: an objective a file, each with its `SPEC` and `Options`.

These files need no torch; what an objective computes is in `modules/`. Read `base/spec` (what
other packages know of an objective) and `base/objective` (the contract), then `masked`, `causal`,
`hybrid`; of two stacks `span_corruption` and `denoising`. `supervised` is what fine-tuning trains.
"""
