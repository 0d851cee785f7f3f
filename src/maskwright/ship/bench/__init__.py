"""How fast a model answers on this machine, beside the libraries that run the same model.

In reading order: `bench` (the whole measurement: the sides take turns, each in a process of its
own; times to a table), `work` (what is asked, and of which texts), `worker` (what a side's process
does), `processor` (the machine, and the same cores for all).

`sides/` has a file for each side: our engine and the libraries beside it. What they share lies in
`side.py`.
"""
