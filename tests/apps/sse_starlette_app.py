"""An SSE server that is not ours: sse-starlette on uvicorn. Prints its port when it listens.

Event n has the id n. Each connection gets 40 at most; one that comes to a hundredth event stays open, and has
no more.
"""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator

import uvicorn
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

AT_ONCE = 40


async def events(request: Request) -> EventSourceResponse:
    after = int(request.headers.get("last-event-id", 0))
    last = min(after + AT_ONCE, after - after % 100 + 100)

    async def some() -> AsyncIterator[ServerSentEvent]:
        for n in range(after + 1, last + 1):
            yield ServerSentEvent(data=f"line {n}\nof ünicode", event="tick", id=str(n), retry=100)
        while last % 100 == 0 and not await request.is_disconnected():
            await asyncio.sleep(0.05)

    return EventSourceResponse(some(), ping=1)


if __name__ == "__main__":
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=[Route("/", events)]), log_level="warning"))
    server.run([listening])
    sys.exit(0)
