"""How fast a model answers on this machine, beside other engines that run the same model.

In reading order: `bench` (the whole measurement: the sides take turns, each in a process of its
own; times to a table), `work` (what is asked, of which texts, and of which engines), `worker` (the
process of a side, and the machine).
"""
