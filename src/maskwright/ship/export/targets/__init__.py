"""The targets of an export, a file each; the file's name is the target's name."""
