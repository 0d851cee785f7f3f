"""Model families: a file each, which is data; `base/` has what they share."""
