"""What engines share: `names`, `engine` (the contract), `calibration` (which one is faster)."""
