"""The steps of a curation, a file each; the file's name is the step's name."""
