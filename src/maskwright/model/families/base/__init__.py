"""What families share: the contract (`family`), checked config fields, rules between weight
names.
"""
