"""Learning a vocabulary from text: `train` is the way in."""
