"""What engines share: `engine`, the contract, and the choice of the fastest."""
