"""The files of a model folder: config, tensors, conventions, names of other libraries.

Read `pretrained` (load and save), `layout` (config.json), `conventions` (how a model is asked),
`files` (tensors), `matching` and `transfer`. The package opening/ opens every folder.
"""
