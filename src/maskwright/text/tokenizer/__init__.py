"""Text to ids and back: five kinds of tokenizer, trained here or read from a folder. No torch."""
