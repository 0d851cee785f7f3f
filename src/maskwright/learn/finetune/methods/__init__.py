"""Methods that are fitted rather than trained step by step, a file each; `base` has their contract.

A member names an instance of its class `METHOD`. Importing it loads neither torch nor scikit-learn.
"""
