"""The parts of recipes: the Recipe itself, finding one by name, changing its fields."""
