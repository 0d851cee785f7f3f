"""What task types share: `task_type` has the contract, and the way to a type by name."""
