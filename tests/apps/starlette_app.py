"""A server that is not ours: starlette and sse-starlette on uvicorn.

There are events at `/sse`, and lines that are packed at `/ndjson`. Each connection gets 40 records at most,
those after the one that it names. One that comes to a hundredth record stays open, and has no more.
"""

import asyncio
import json
from collections.abc import AsyncIterator

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

AT_ONCE = 40


async def numbers(request: Request, after: int) -> AsyncIterator[int]:
    last = min(after + AT_ONCE, after - after % 100 + 100)
    for n in range(after + 1, last + 1):
        yield n
    while last % 100 == 0 and not await request.is_disconnected():
        await asyncio.sleep(0.05)


async def sse(request: Request) -> EventSourceResponse:
    async def events() -> AsyncIterator[ServerSentEvent]:
        async for n in numbers(request, int(request.headers.get("last-event-id", 0))):
            yield ServerSentEvent(data=f"line {n}\nof ünicode", event="tick", id=str(n), retry=100)

    return EventSourceResponse(events(), ping=1)


async def ndjson(request: Request) -> StreamingResponse:
    async def lines() -> AsyncIterator[str]:
        async for n in numbers(request, int(request.query_params.get("after", 0))):
            yield json.dumps({"meta": {"offset": n}, "word": f"Grüße {n}"}, ensure_ascii=False) + "\n"

    return StreamingResponse(lines(), media_type="application/x-ndjson")


app = Starlette(
    routes=[Route("/sse", sse), Route("/ndjson", ndjson)], middleware=[Middleware(GZipMiddleware)]
)
