"""The command line: `main` dispatches, `verbs/` has one file per verb."""
