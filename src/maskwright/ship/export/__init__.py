"""Export of a model to formats that other programs load. Each target is a file of `targets/`.

    model --target--> files --read again and compared--> committed folder, with export.json

Read `target.py` (the interface of a target, and its report), `run.py` (the entry point),
`folder.py` (the graphs of a model, the folders that targets write, and their comparison with the
model), int8.py. Adapters are merged first (model/opening/open.py).
"""
