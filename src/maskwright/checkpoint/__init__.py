"""The files of a model folder: config, tensors, names of other libraries. `pretrained` is the
way in.
"""
