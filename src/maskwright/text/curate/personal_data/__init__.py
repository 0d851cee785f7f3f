"""Personal data in texts: telephone and identity numbers, addresses, and words before them."""
