"""An SSE server that is not ours: sse-starlette on uvicorn. Prints its port when it listens.

Event n has the id n; each connection gets 40 at most.
"""

import socket
import sys
from collections.abc import AsyncIterator

import uvicorn
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

COUNT = 200
AT_ONCE = 40


async def events(request: Request) -> EventSourceResponse:
    first = int(request.headers.get("last-event-id", 0)) + 1

    async def some() -> AsyncIterator[ServerSentEvent]:
        for n in range(first, min(first + AT_ONCE, COUNT + 1)):
            yield ServerSentEvent(data=f"line {n}\nof ünicode", event="tick", id=str(n), retry=100)
        if first + AT_ONCE > COUNT:
            await request.receive()  # nothing more comes, until the reader has gone

    return EventSourceResponse(some(), ping=1)


if __name__ == "__main__":
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=[Route("/", events)]), log_level="warning"))
    server.run([listening])
    sys.exit(0)
