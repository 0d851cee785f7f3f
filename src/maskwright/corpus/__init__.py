"""Text in: the user's files, or the documentation that lies on every machine. No torch.

`read` turns files into `Document`s and refuses what is no text, with file, line and remedy;
`embedded` and `labelled` need no files at all.
"""
