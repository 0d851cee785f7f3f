"""What families share: the contract and checked config fields (`family`), rules between weight
names.
"""
