"""Pictures, computed point by point: the only room that writes SVG.

Read `svg` (the pieces), then `curves` (lines over an axis), `shades` (grids, the weights of a head,
points in a plane), `masks` (who sees whom).
"""
