"""Messages per second of a broker and of a WebSocket: through a query into its log, and in a bare loop.

A fixed number of messages waits at the server. What counts is the time from the first of them to the last:
for the loop the last that it has counted, for the query the last that its feed has handed to the log, while
batches of it run.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import paho.mqtt.client as paho
from bars import Sample
from cases import MessageCase
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from pyspark.sql import SparkSession
from settings import Settings
from spark import new_checkpoint, running
from websockets.asyncio.client import connect

import headwater as hw

__all__ = ["HEAP", "JAVA_OPTIONS", "measure"]

HEAP = "2g"
JAVA_OPTIONS = "-Xms2g"

_PAYLOAD = b'{"text":"' + b"x" * 872 + b'","id":%d}'
_BLOCK = 1000
_CLIENT_ID, _TOPIC, _WINDOW = "bench", "bench/messages", 10_000
_TIMEOUT = 600.0


def measure(spark: SparkSession, case: MessageCase, settings: Settings) -> Sample:
    count = settings.messages_count
    serving, counted = {"mqtt": (_broker, _count_mqtt), "websocket": (_websocket, _count_websocket)}[
        case.path
    ]
    if (load := case.load) is None:
        with serving(count) as url:
            return {"rate": count / counted(url, count)}
    with serving(count // 10) as url:  # warms the JVM
        _seconds(spark, load, url, count // 10)
    with serving(count) as url:
        return {"rate": count / _seconds(spark, load, url, count)}


def _seconds(spark: SparkSession, load: Callable[..., object], url: str, count: int) -> float:
    """From the first row of the feed to the last."""
    writer = load(spark, url).writeStream.format("noop")
    end = time.monotonic() + _TIMEOUT
    with new_checkpoint() as folder, running(writer.option("checkpointLocation", folder).start()) as query:
        while not _rows():
            _go_on(query, end)
        began, first = time.monotonic(), _rows()
        while _rows() < count:
            _go_on(query, end)
        return (time.monotonic() - began) * count / (count - first)


def _rows() -> int:
    return sum(feed.rows for feed in hw.feeds())


def _go_on(query: object, end: float) -> None:
    if query.awaitTermination(0.01) or time.monotonic() > end:
        raise RuntimeError(f"the query did not read all messages: {query.status}")


# MQTT


@contextmanager
def _broker(count: int) -> Iterator[str]:
    """A mosquitto that has so many messages for the client."""
    program = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "mosquitto.conf"
        config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n")
        broker = subprocess.Popen([program, "-c", str(config)], stderr=subprocess.DEVNULL)
        try:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except ConnectionRefusedError:
                    time.sleep(0.05)
            _subscribe(port)
            _fill(port, count)
            yield f"mqtt://127.0.0.1:{port}"
        finally:
            broker.kill()
            broker.wait()


def _client(port: int, on_message: Callable[..., None] | None = None) -> paho.Client:
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, _CLIENT_ID, protocol=paho.MQTTv5)
    client.on_message = on_message
    session = Properties(PacketTypes.CONNECT)
    session.SessionExpiryInterval = 3600
    session.ReceiveMaximum = _WINDOW
    client.connect("127.0.0.1", port, clean_start=False, properties=session)
    return client


def _subscribe(port: int) -> None:
    client = _client(port)
    client.on_subscribe = lambda *_: client.disconnect()
    client.subscribe(_TOPIC, 1)
    client.loop_forever()


def _fill(port: int, count: int) -> None:
    """Publishes with QoS 1, without a library: a client in Python would take longer than those measured."""
    with socket.create_connection(("127.0.0.1", port)) as link:
        link.sendall(b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04fill")
        link.recv(4)
        acknowledged = threading.Thread(target=_read, args=(link, 4 * count))
        acknowledged.start()
        topic = struct.pack(">H", len(_TOPIC)) + _TOPIC.encode()
        for first in range(0, count, _BLOCK):
            packets = []
            for n in range(first, min(first + _BLOCK, count)):
                body = topic + struct.pack(">H", n % 65_535 + 1) + _PAYLOAD % n
                packets.append(bytes([0x32, len(body) & 0x7F | 0x80, len(body) >> 7]) + body)
            link.sendall(b"".join(packets))
        acknowledged.join()


def _read(link: socket.socket, size: int) -> None:
    while size > 0:
        size -= len(link.recv(65_536))


def _count_mqtt(url: str, count: int) -> float:
    times: list[float] = []
    seen = 0

    def on_message(client: paho.Client, _: object, message: paho.MQTTMessage) -> None:
        nonlocal seen
        seen += 1
        if seen in (1, count):
            times.append(time.monotonic())
        if seen == count:
            client.disconnect()

    _client(int(url.rpartition(":")[2]), on_message).loop_forever()
    return times[1] - times[0]


# WebSocket


@contextmanager
def _websocket(count: int) -> Iterator[str]:
    """A server that sends so many messages as fast as they are read. The frames are made beforehand."""
    blocks = [b"".join(map(_frame, range(first, first + _BLOCK))) for first in range(0, count, _BLOCK)]
    listener = socket.create_server(("127.0.0.1", 0))
    links: list[socket.socket] = []
    thread = threading.Thread(target=_serve, args=(listener, blocks, links))
    thread.start()
    try:
        yield f"ws://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for link in links:
            link.close()
        thread.join()


def _frame(n: int) -> bytes:
    data = _PAYLOAD % n
    return b"\x81\x7e" + struct.pack(">H", len(data)) + data


def _serve(listener: socket.socket, blocks: list[bytes], links: list[socket.socket]) -> None:
    try:
        while True:
            link, _ = listener.accept()
            links.append(link)
            head = b""
            while b"\r\n\r\n" not in head:
                head += link.recv(65_536)
            key = re.search(rb"(?i)sec-websocket-key: *(\S+)", head)[1]
            accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
            upgrade = b"HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            link.sendall(upgrade + b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")
            for block in blocks:
                link.sendall(block)
    except OSError:
        pass  # it is closed


def _count_websocket(url: str, count: int) -> float:
    async def run() -> float:
        async with connect(url, close_timeout=0.1) as link:
            await link.recv()
            began = time.monotonic()
            for _ in range(count - 1):
                await link.recv()
            return time.monotonic() - began

    return asyncio.run(run())
