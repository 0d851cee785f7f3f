"""What a page asks Python: a file for each, whose name is that of the question (POST /ask/NAME).

Each has `answer(site, given)`: from a JSON object to another one.
"""
