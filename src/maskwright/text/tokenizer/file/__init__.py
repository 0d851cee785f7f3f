"""The file form of tokenizers: `tokenizer.json` checked, read and written; foreign forms
converted.
"""
