"""From a folder of raw text to a corpus: cleaning, filters, duplicates, balance. No torch.

    files --read--> shards --steps, in the recipe's order--> text/, removed/, card, page

`steps/` has a file per step. Read `step.py` (what a step is, sees and answers); then
`engine/`, which runs steps over shards.
"""
