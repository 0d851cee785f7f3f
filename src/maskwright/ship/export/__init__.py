"""A model in files that others load: each target is a file of `targets/`, found by its name.

    model --target--> files --read again and compared--> committed folder, with `export.json`

Read `parts/target.py` (what a target is, and what it reports), `run.py` (a model's folder to an
exported one), `parts/proof.py` (every export is read again before success is said),
`parts/model_folder.py` (which graphs a model has), `parts/folder.py` (the files next to them),
`parts/answers.py` (labelled rows answered by a graph), `parts/int8.py`, `parts/onnx_folder.py`.
Adapters are folded in first (`model/opening/open.py`).
"""
