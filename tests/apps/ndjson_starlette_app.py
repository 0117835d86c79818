"""An NDJSON server that is not ours: starlette on uvicorn, which packs what it sends.

Each connection gets 40 records at most, those after `?after=`. One that comes to a hundredth record stays
open, and has no more.
"""

import asyncio
import json
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

AT_ONCE = 40


async def records(request: Request) -> StreamingResponse:
    after = int(request.query_params.get("after", 0))
    last = min(after + AT_ONCE, after - after % 100 + 100)

    async def some() -> AsyncIterator[str]:
        for n in range(after + 1, last + 1):
            yield json.dumps({"meta": {"offset": n}, "word": f"Grüße {n}"}, ensure_ascii=False) + "\n"
        while last % 100 == 0 and not await request.is_disconnected():
            await asyncio.sleep(0.05)

    return StreamingResponse(some(), media_type="application/x-ndjson")


app = Starlette(routes=[Route("/", records)], middleware=[Middleware(GZipMiddleware)])
