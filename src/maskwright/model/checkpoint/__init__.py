"""The files of a model folder: config, tensors, conventions, names of other libraries.

Read `pretrained` (load and save), `layout` (config.json, and how a model is asked), `files`
(tensors) and `matching`. The package opening/ opens every folder.
"""
