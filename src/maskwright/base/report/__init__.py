"""What a run has to tell: live on the terminal, and afterwards as one page.

`panel` while it trains, `page` when somebody asks. Both read plain records, so nothing here knows
torch, and a report can be written on a machine that could not train. Every page and card is a file
of `templates/`, filled and escaped by `document`; pictures are computed in `drawing`.
"""
