"""REST endpoints of a server that is not ours: starlette on uvicorn.

POLL_APP_FOLDER has a file `records` with the number of records that there are, and gets the requests as
lines of JSON. All endpoints have the same records, ten at a time: after `?after=N` or the header `After: N`,
with the next page as a token or as a link; the newest thirty, newest first, with an ETag; and those that a
POST asks for.
"""

import json
import os
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

FOLDER = Path(os.environ["POLL_APP_FOLDER"])
LIMIT = 10


def records() -> list[dict[str, Any]]:
    return [
        {"id": n, "price": n / 4, "word": f"Gr\u00fc\u00dfe {n}"}
        for n in range(1, int((FOLDER / "records").read_text()) + 1)
    ]


async def log(request: Request) -> int:
    """Writes the request down, and returns how many there were."""
    body = (await request.body()).decode()
    names = ("after", "authorization", "content-type", "if-none-match", "if-modified-since")
    entry = {
        "method": request.method,
        "path": request.url.path,
        "query": dict(request.query_params),
        "headers": {name: request.headers[name] for name in names if name in request.headers},
        "body": json.loads(body) if body else None,
    }
    with (FOLDER / "requests").open("a") as file:
        file.write(json.dumps(entry) + "\n")
    return (FOLDER / "requests").read_text().count("\n")


async def after(request: Request) -> Response:
    await log(request)
    after = int(request.query_params.get("after", request.headers.get("after", 0)))
    return JSONResponse({"data": {"count": 3, "items": records()[after : after + LIMIT]}})


async def tokens(request: Request) -> Response:
    await log(request)
    after, page = int(request.query_params.get("after", 0)), int(request.query_params.get("page", 0))
    found = records()[after:]
    items, rest = found[page * LIMIT : (page + 1) * LIMIT], found[(page + 1) * LIMIT :]
    return JSONResponse({"items": items, "meta": {"next": page + 1 if rest else None}})


async def links(request: Request) -> Response:
    await log(request)
    page = int(request.query_params.get("page", 0))
    items, rest = records()[page * LIMIT : (page + 1) * LIMIT], records()[(page + 1) * LIMIT :]
    link = f'</links?page=0>; rel="first", </links?page={page + 1}>; rel="next"'
    return JSONResponse(items, headers={"Link": link} if rest else {})


async def newest(request: Request) -> Response:
    await log(request)
    tag = f'"{len(records())}"'
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"ETag": tag})
    return JSONResponse(records()[-30:][::-1], headers={"ETag": tag})


async def search(request: Request) -> Response:
    await log(request)
    query = await request.json()
    after = query["where"].get("after", 0)
    return JSONResponse({"hits": records()[after : after + query["limit"]]})


async def limited(request: Request) -> Response:
    """Every second request is one too many."""
    if await log(request) % 2:
        return Response(status_code=403, headers={"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "0"})
    return await after(request)


async def elsewhere(request: Request) -> Response:
    """The next page is another server's."""
    return JSONResponse({"items": [1], "next": "http://127.0.0.1:1/"})


async def moved(request: Request) -> Response:
    return RedirectResponse("/search", status_code=int(request.query_params["status"]))


async def same(request: Request) -> Response:
    return JSONResponse({"items": [1], "next": "/same"})


async def html(request: Request) -> Response:
    return Response("<html>Please log in", media_type="text/html")


async def broken(request: Request) -> Response:
    return Response('{"items": [', media_type="application/json")


endpoints = (after, tokens, links, newest, limited, elsewhere, same, html, broken)
posts = (search, moved)
app = Starlette(
    routes=[
        *(Route(f"/{endpoint.__name__}", endpoint) for endpoint in endpoints),
        *(Route(f"/{endpoint.__name__}", endpoint, methods=["POST"]) for endpoint in posts),
    ]
)
