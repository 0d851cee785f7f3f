"""What a model has learned, by layer and by attention head.

Read `hidden_states` (the states of all layers), `probe`, `layers`, `word_senses`; then `attention`;
`tokens` shows how a text is tokenized.
"""
