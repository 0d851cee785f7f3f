"""What a trained model is used and measured by.

Read in this order: `predict/` (`maskwright.load`, rows of files), `evaluate/` (losses, labelled
rows, comparisons), `analysis/` (probes, attention), `quickstart`.
"""
