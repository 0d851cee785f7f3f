"""Export of a model to formats that other programs load. Each target is a file of `targets/`.

    model --target--> files --read again and compared--> committed folder, with export.json

Read `target.py` (the interface of a target, and its report), `run.py` (the entry point), `proof.py`
(comparison of every export with the model), `folder.py` (the graphs of a model, and the folders
that targets write), int8.py. Adapters are merged first (model/opening/open.py).
"""
