"""The stack: one Transformer whose shape, masks and sizes come from `config.py`.

It takes tensors and masks, and knows no text, no file and no family by name. Read in this order:
`config`, `mask`, `layers`, `attention`, `stack`, `transformer`.

Letters for the axes of tensors, the same in every file of nn/ and objectives/:

    B  rows of a batch           D  width of the model         N  positions that have a target
    T  positions in a row        E  width of the token table   R  rows that are pooled
    Q  queries (T, or fewer)     F  inner width of a block     S  memory: positions of the encoder
    K  keys                      H  heads                      V  vocabulary
    L  labels of a head          W  width of a head            P  pieces of a text, or pairs
    I  inputs of a projection    O  its outputs
"""
