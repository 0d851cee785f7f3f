"""Adapting a model that is there by training few parameters.

A file per method, named after it, holds its settings and needs no torch; what it adds to a model
is the file of the same name in `modules/`. In `parts/`, in the order to read them: `settings` and
`adapter` are the contract, `places` finds where in a model a method acts, `freeze` chooses which of
the model's own parameters train, `folder` saves and loads. `peft/` is the form of the peft library.
A method asks for no model's name: it finds its places by the names of the modules of `nn/`.
"""
