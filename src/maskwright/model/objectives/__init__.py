"""Training objectives, one module each, with its `SPEC` and `Options`.

These modules do not import torch; the computations are in `modules/`. Read `base/spec` (properties
used by other packages) and `base/objective` (the interface), then `masked`, `causal`, `hybrid`, and
for encoder-decoders `span_corruption` and `denoising`. `supervised` is used for fine-tuning.
"""
