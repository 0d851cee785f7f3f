"""What the targets share."""
