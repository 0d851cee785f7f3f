"""What a model has learned, layer by layer and head by head.

Read `hidden_states` (what is looked at), `probe`, `layers`, `word_senses`, `dependencies`; then
`attention` and `heads`; `tokens` shows how a text is read.
"""
