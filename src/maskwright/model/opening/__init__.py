"""The one way to open a model.

Read `open` (a path to a `Model`), `model` (the value), `folders` (which folder a path means),
`of_recipe` (how the model of a recipe is asked), `head_alone` (a head that is opened on another
model).
"""
