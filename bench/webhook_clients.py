"""Clients that POST as fast as they are answered: `webhook_clients.py PORT CLIENTS SECONDS`.

Prints JSON: requests per second with a 200, and how long they took, in seconds.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from statistics import quantiles


class Client(asyncio.Protocol):
    """One connection and one request at a time. It is over at `end`."""

    def __init__(self, number: int, times: list[float], end: float) -> None:
        self.number, self.times, self.end = number, times, end
        self.done = asyncio.get_running_loop().create_future()
        self.response = b""
        self.sent = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.send()

    def send(self) -> None:
        body = b'{"id": %d, "total": 9.5}' % self.sent
        head = (
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nIdempotency-Key: %d-%d-%d\r\n"
        )
        key = (time.time_ns(), self.number, self.sent)
        self.sent += 1
        self.began = time.perf_counter()
        self.transport.write(head % key + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    def data_received(self, data: bytes) -> None:
        self.response += data
        if not self.response.endswith(b"\n") or self.response.endswith(b"\r\n"):
            return  # the text of every response ends with a line break
        now = time.perf_counter()
        if not self.response.startswith(b"HTTP/1.1 200 "):
            self.done.set_exception(RuntimeError(self.response.decode()))
            return
        self.times.append(now - self.began)
        self.response = b""
        if now < self.end:
            self.send()
        else:
            self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


async def connect(number: int, port: int, times: list[float], end: float) -> Client:
    loop = asyncio.get_running_loop()
    return (await loop.create_connection(lambda: Client(number, times, end), "127.0.0.1", port))[1]


async def main(port: int, clients: int, seconds: float) -> None:
    await asyncio.wait_for(_until_there(port), 120)
    times: list[float] = []
    began = time.perf_counter()
    running = [await connect(number, port, times, began + seconds) for number in range(clients)]
    await asyncio.gather(*(client.done for client in running))
    taken = time.perf_counter() - began
    p50, p99 = sorted(times)[len(times) // 2], quantiles(times, n=100)[98]
    sample = {"rate": len(times) / taken, "p50": p50, "p99": p99}
    sys.stdout.write(json.dumps(sample))


async def _until_there(port: int) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.1)
        else:
            writer.close()
            return


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
