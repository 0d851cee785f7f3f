"""A model in files that others load: each target is a file of `targets/`, found by its name.

    model --target--> files --read again and compared--> committed folder, with export.json

Read `target.py` (what a target is, and what it reports), `run.py` (a model's folder to an
exported one), `proof.py` (every export is read again before success is said),
`model_folder.py` (which graphs a model has), `graph_folder.py` (the files next to them),
`answers.py` (labelled rows answered by a graph), int8.py, `onnx_folder.py`.
Adapters are merged first (model/opening/open.py).
"""
