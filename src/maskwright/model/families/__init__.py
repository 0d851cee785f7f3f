"""Model families: a file each, which is data; `parts/` has what they share."""
