"""What the sides share: `side` (their contract), `padded` (the loop around a forward pass)."""
