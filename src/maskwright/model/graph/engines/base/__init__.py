"""What the engines share: `names` (which there are), `engine` (the contract), `calibration` (which
is sooner here)."""
