"""What every task type shares: `task_type` is the contract, `find` the way to a type by name."""
