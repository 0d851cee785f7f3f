"""The verbs of the command line, one file each: SUMMARY, arguments(parser), do(arguments)."""
