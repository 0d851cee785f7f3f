"""What engines share: `engine`, the contract, loading, and the arrays that a graph reads."""
