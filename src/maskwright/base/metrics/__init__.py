"""Numbers that say how good predictions are, with their intervals and the baselines. No torch."""
