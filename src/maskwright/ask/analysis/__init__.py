"""What a model has learned, by layer and by attention head.

Read `hidden_states` (the states of all layers), `probe`, `layers`, `pooling`, `word_senses`; then
`attention`, `heads` and `dependencies`; `tokens` shows how a text is tokenized.
"""
