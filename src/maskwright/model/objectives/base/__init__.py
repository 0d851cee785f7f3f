"""What objectives share: the contract (`objective`), corruption by key, rows for two stacks."""
