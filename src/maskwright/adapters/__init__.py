"""Adapting a model that is there by training few parameters.

A file per method, named after it; `adapter` is the contract and `places` says where it acts,
`freeze` says which of a model's own parameters train, `folder` saves and loads, in the form of
others where there is one (`peft_form`). A method asks for no model's name: it finds its places by
the names of the modules of `nn/`.
"""
