"""Pictures, computed point by point: the only package that writes SVG.

Read `svg` (the pieces; grids, the weights of a head, points in a plane), then `curves` (lines over
an axis, histograms).
"""
