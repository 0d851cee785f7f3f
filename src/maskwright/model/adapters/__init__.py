"""Adaptation of a model that is there by training few parameters: a file per method.

Each file has the settings of one method; what it puts into a network lies in `modules/`. Read
`lora`, then `modules/lora`, then `base/adapter` (the contract), `base/freeze`, `base/folder`.
"""
