"""The one way to open a model.

Read `open` (a path to a `Model`), `model` (the value), `folders` (which folder a path means),
`of_recipe` (how the model of a recipe is asked), `adapter_folder` and `head_alone` (what is opened
on another model), `merged` (a model as weights alone).
"""
