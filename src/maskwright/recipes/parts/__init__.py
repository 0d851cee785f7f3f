"""What recipes are made of: the Recipe itself, finding one by name, changing a field of it."""
