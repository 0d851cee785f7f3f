"""Export of a model to formats that other programs load. Each target is a file of `targets/`.

    model --target--> files --read again and compared--> committed folder, with export.json

Read `target.py` (the interface of a target, and its report), `run.py` (the entry point), `proof.py`
(comparison of every export with the model), `model_folder.py` (the graphs of a model, and model
folders as targets), `graph_folder.py` (the files beside the graphs), `answers.py` (evaluation of a
graph on labelled rows), int8.py. Adapters are merged first (model/opening/open.py).
"""
