"""Task types: a file each with encoding, head, answers, figures and baselines.

Read `classification`, then `parts/task_type` (the contract) and `parts/encode`.
"""
