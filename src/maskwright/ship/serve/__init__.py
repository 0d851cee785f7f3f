"""Models over HTTP: one process, one device, many models, heads and adapters.

    request -> gate -> a dialect's route -> host -> tokenise -> scheduler -> device -> answer

Read `errors` (refusals and limits), `scheduler` (batching, and the one thread that computes),
`served_model`, `host` (the interface for routes), then `app`, `callers`, `access`, `gate`,
`process` (HTTP).
`dialects/` has a file for each protocol, which depends on `host` and `errors` only.
"""
