"""What a network learns: an objective a file, each with its `SPEC`, `Options` and `build`.

These files need no torch; what an objective computes lies in `modules/`. Read `base/spec` (what
other packages know of an objective) and `base/objective` (the contract), then `masked`, `causal`,
`hybrid`; of two stacks `span_corruption` and `denoising`. `supervised` is what fine-tuning trains.
"""
