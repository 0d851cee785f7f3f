"""Networks and everything that works on tensors; no tables and no raw text.

Read in this order: `nn/` (the stack), `families/` (model types as data), `batch`, `objectives/`,
`checkpoint/` (model folders), `adapters/`, `device/` (precision, threads, memory), `opening/` (a
path to a `Model`), `inference/` (rows to scores, prompts to text), `graph/` (ONNX and OpenVINO).
"""
