"""Adapting a model that is there by training few parameters.

A file per method, named after it; `adapter` is the contract, `freeze` says which of a model's own
parameters train, `peft_form` reads and writes the folders of others. A method asks for no model's
name: it finds its places by the names of the modules of `nn/`.
"""
