"""What all fitted methods share: the contract (`fitted`), frozen vectors, linear models."""
