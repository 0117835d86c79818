"""A server of the package websockets: `python websocket_app.py PORT`. Prints a line when it listens.

`/events?cursor=T` sends 1,000 events, those of time T and later, 3 of which share each time; `/numbered`
those after the number that the first message has. `/binary`, `/large` and `/closing` send a message or two.
`/hello` sends back the headers and the first two messages.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.server import ServerConnection, serve

EVENTS = 1000


def event(n: int) -> str:
    return json.dumps({"n": n, "meta": {"t": n // 3}, "word": f"Grüße {n}"}, ensure_ascii=False)


async def handle(connection: ServerConnection) -> None:
    assert connection.request is not None
    url = urlsplit(connection.request.path)
    query = parse_qs(url.query)
    messages: list[Any] = []
    if url.path == "/events":
        start = 3 * int(query.get("cursor", ["0"])[0])
        messages = [event(n) for n in range(start, EVENTS)]
    elif url.path == "/numbered":
        first = json.loads(await connection.recv())
        start = 0 if first == "all" else first["after"] + 1
        messages = [event(n) for n in range(start, EVENTS)]
    elif url.path == "/hello":
        got = [await connection.recv(), await connection.recv()]
        headers = dict(connection.request.headers)
        extensions = [type(one).__name__ for one in connection.protocol.extensions]
        messages = [json.dumps({"got": got, "headers": headers, "extensions": extensions})]
    elif url.path == "/binary":
        messages = [b"\x00\xff", "Grüße"]
    elif url.path == "/large":
        messages = ["x" * 100, "x" * 100_000]
    elif url.path == "/closing":
        await connection.send("{}")
        await connection.close(4000, "that was all")
    for message in messages:
        await connection.send(message)
    await connection.wait_closed()


async def main() -> None:
    async with serve(handle, "127.0.0.1", int(sys.argv[1])) as server:
        print("listening", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
