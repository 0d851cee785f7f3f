"""Protocols that clients speak, a file each.

A dialect has `routes(host) -> APIRouter`, its paths, and `render(refusal) -> Response`, the shape
of its errors. It is found by lying here; it knows `serve.host` and `serve.errors` and no engine.
"""
