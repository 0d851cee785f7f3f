"""Models behind an API: one process, one device, many models, heads and adapters.

    request -> gate -> a dialect's route -> host -> tokenise -> scheduler -> device -> answer

Read `errors` (what a client is refused with), `limits` (every bound), `scheduler` (which requests
go together, whose turn it is, and the one thread that computes), `served` (a model that
was opened), `host` (all that a route may ask), then `app`, `gate` and `process` (HTTP). `dialects/`
has a file for each protocol, which knows only `host` and `errors`.
"""
