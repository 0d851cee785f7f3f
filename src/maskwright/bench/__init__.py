"""How fast a model answers on this machine, beside the libraries that run the same model.

In reading order: `command` (the whole measurement), `work` (what is asked, and of which texts),
`turns` (a side is a process; the sides take turns), `worker` (what that process does), `figures`
(times to a table), `processor` (the machine, and the same cores for all).

`sides/` has a file for each side: our engine and the libraries beside it. What they share lies in
`sides/parts/`.
"""
