"""Task types: a file each with encoding, head, answers, figures and baselines.

Read `classification`, then `base/task_type` (the contract) and `base/encode`.
"""
