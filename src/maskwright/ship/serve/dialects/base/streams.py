"""A response that comes as events, `data: {…}`, a piece of text each."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

from fastapi.responses import StreamingResponse

from maskwright.ship.serve.errors import Refusal, of_error
from maskwright.ship.serve.host import Piece


def event(value: Any) -> bytes:
    """One event."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"data: {text}\n\n".encode()


async def streaming(
    pieces: AsyncIterator[Piece],
    events: Callable[[AsyncIterator[Piece]], AsyncIterator[Any]],
    failed: Callable[[Refusal], Any],
    headers: dict[str, str],
) -> StreamingResponse:
    """The response, once the request was admitted: the first piece is there.

    Args:
        pieces: what the host writes; closed when the response ends, however it ends.
        events: what is sent of the pieces.
        failed: what is sent where it fails in the middle.

    Raises:
        Refusal: the request is refused before anything was sent.
    """
    first = await anext(pieces, None)

    async def all_pieces() -> AsyncIterator[Piece]:
        if first is not None:
            yield first
        async for piece in pieces:
            yield piece

    async def body() -> AsyncIterator[bytes]:
        async with aclosing(pieces):  # type: ignore[type-var]
            try:
                async for each in events(all_pieces()):
                    yield event(each)
            except Exception as error:
                yield event(failed(of_error(error)))

    return StreamingResponse(body(), media_type="text/event-stream", headers=headers)
