"""What every method of adaptation shares: the contract (`adapter`), places, freezing, folders."""
