"""Which column of a table is what, and which task the table is for: `find`, then `infer`."""
