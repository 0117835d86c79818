"""A source of your own over a WebSocket, with an async `read`, that goes on after its last event.

    pip install websockets
    python examples/websocket_source.py [wss://jetstream2.us-east.bsky.network/subscribe]

The built-in source `websocket` reads this too; here is how to write such a source yourself.

It reads what Bluesky's Jetstream speaks: a message is a JSON object with its time in microseconds, and
`?cursor=` says from which time on. Without a URL there is a server in this file, which breaks off again and
again. In the end the events in the table are compared with those that it has: the exit status is 1 if they
differ.
"""

import json
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from urllib.parse import parse_qs, urlsplit

from pyspark.sql import SparkSession
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

import headwater as hw

SCHEMA = "time_us LONG, kind STRING, did STRING"


class Jetstream(hw.Source, name="jetstream", schema=SCHEMA, identity=("url",)):
    """Events of accounts, and of what they write."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def read(self, since: int | None) -> AsyncIterator[hw.At]:
        """`stop()` of the query cancels it where it awaits, which closes the connection."""
        joint = "&" if "?" in self._url else "?"
        async with connect(self._url if since is None else f"{self._url}{joint}cursor={since}") as socket:
            async for message in socket:
                event = json.loads(message)
                time = event["time_us"]
                if since is None or time > since:  # that of the cursor itself comes again
                    yield hw.At(time, (time, event["kind"], event["did"]))
        raise ConnectionError("the server has closed the connection")  # to return is to end for good


def run(url: str, rows: int) -> list[int]:
    builder = SparkSession.builder.master("local[2]").appName("WebSocket")
    spark = hw.session(builder.config("spark.ui.showConsoleProgress", "false"))
    stream = hw.stream(spark, Jetstream(url=url), on_error="restart")  # after the last cursor
    query = stream.writeStream.format("memory").queryName("events").start()
    while spark.table("events").count() < rows and not query.awaitTermination(0.2):
        pass
    query.stop()
    spark.table("events").groupBy("kind").count().show()
    found = [row.time_us for row in spark.table("events").collect()]
    spark.stop()
    return found


EVENTS = [
    {"time_us": 1_717_156_800_000_000 + n * 137, "kind": "commit", "did": f"did:plc:{n % 40:024}"}
    for n in range(1000)
]
asked_for: list[str] = []


def serve_some(connection: ServerConnection) -> None:
    """The server's side of a connection: 300 events at most, and then it breaks off."""
    asked_for.append(connection.request.path)
    (cursor,) = parse_qs(urlsplit(connection.request.path).query).get("cursor", ["0"])
    wanted = [event for event in EVENTS if event["time_us"] >= int(cursor)]
    with suppress(ConnectionClosed):
        for event in wanted[:300]:
            connection.send(json.dumps(event))
        if len(wanted) <= 300:
            connection.recv()  # there is no more for now, and it stays open


def main() -> int:
    if len(sys.argv) > 1:
        run(sys.argv[1], rows=1000)
        return 0
    with serve(serve_some, "127.0.0.1", 0) as server:
        threading.Thread(target=server.serve_forever).start()
        found = run("ws://{}:{}/subscribe".format(*server.socket.getsockname()), rows=len(EVENTS))
    print(f"{len(found)} events over {len(asked_for)} connections, the last one for {asked_for[-1]}")
    return int(found != [event["time_us"] for event in EVENTS])


if __name__ == "__main__":
    sys.exit(main())
