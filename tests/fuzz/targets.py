"""One function per parser, which makes one random input and checks what the parser does with it.

A target fails by raising an exception: an assertion of its own, or one that the parser must not raise.
The parsers are private modules, since the point is to reach them without the network in between.
"""

from __future__ import annotations

import gzip
import json
import logging
import socket
import struct
import threading
import zlib
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from random import Random
from typing import Any

from http_server import Exchange, chunked, serving
from test_decode_laws import FAST, SLOW, row_reprs, rows
from test_sse import by_the_standard

import headwater as hw
from fuzz.inputs import mutate, split
from headwater.decode import decoder
from headwater.http import Http, HttpError
from headwater.http.chunked import ChunkDecoder
from headwater.runtime.protocol import ControlConnection, Reply, Request
from headwater.sources.rsvp_lines import Position
from headwater.sources.sse_events import EventStream, TimestampIds
from headwater.sources.webhook_requests import RequestError, check_body, check_headers, split_body

__all__ = ["TARGETS"]

TARGETS: dict[str, Callable[[Random], None]] = {}


def _target(function: Callable[[Random], None]) -> Callable[[Random], None]:
    TARGETS[function.__name__] = function
    return function


# Server-sent events

_TIMES = json.dumps(
    [{"topic": "a", "partition": 0, "timestamp": 71}, {"topic": "b", "partition": 1, "offset": 3}]
)
_EVENT_STREAMS = [
    b"\xef\xbb\xbfid: 1\nevent: add\ndata: one\n\nid: 2\nevent: add\ndata: two\n\n",
    b": comment\r\n\r\ndata: a\r\ndata: b\r\nid: 7\r\nretry: 1500\r\n\r\ndata\rdata\r\r",
    b"data:x\n\nid\ndata: y\n\nevent: e\nevent:\ndata: z\n\nunknown: field\n\n",
    f"id: {_TIMES}\ndata: {{}}\n\n".encode() * 3,
    "data: Zeile\u2028zwei \x85\x0b\x0c\x1c\n\n".encode(),
]


@_target
def sse(random: Random) -> None:
    data = mutate(random, random.choice(_EVENT_STREAMS), _EVENT_STREAMS)
    stream, timestamps = EventStream(), TimestampIds(None)
    parsed = []
    for chunk in split(random, data):
        events = stream.feed(chunk)
        parsed += zip(events.data.to_pylist(), events.event.to_pylist(), events.id, strict=True)
        kept = timestamps.drop_repeats(events)
        assert len(kept.id) <= len(events.id)
    expected = by_the_standard(data)
    assert parsed == expected, f"{data!r} is {parsed!r}, it should be {expected!r}"
    cursor = json.loads(json.dumps(timestamps.cursor(stream.last_id)))
    if cursor is not None:
        TimestampIds(cursor).rewind(stream.last_id or "")


# JSON records, alone and among others, read by pyarrow and by Python

_RECORDS = [
    b'{"i": 1, "l": -9007199254740993, "d": 1.5e3, "s": "a\\u00e9\\n", "b": true, "c": "12.50"}',
    b'{"t": "2024-05-31T12:30:00.123456Z", "e": "2024-02-29", "x": "aGk=", "a": [1, null, 2.5]}',
    b'{"o": {"i": 4, "t": null, "o": {"c": 1.25}}, "p": [{"e": "2024-01-01"}, null], "unknown": {"a": [{}]}}',
    b'{"s": "' + b'\\"' * 200 + b'"}',
    b"{" + b'"o":{' * 40 + b"}" * 41,
]


@_target
def json_records(random: Random) -> None:
    records = [mutate(random, random.choice(_RECORDS), _RECORDS) for _ in range(random.randrange(1, 4))]
    alone = [row for record in records for row in row_reprs(FAST, [record])]
    assert row_reprs(FAST, records) == alone
    assert len(alone) == len(records)
    for record in records:
        (slow,), (fast,) = rows(SLOW, [record]), rows(FAST, [record])
        is_bad = isinstance(slow, hw.BadRow)
        assert is_bad == isinstance(fast, hw.BadRow)
        assert repr(fast) == repr(hw.BadRow(slow.value, slow.reason, slow.row[:-1]) if is_bad else slow[:-1])


# Requests to a webhook

_BODIES = [
    b'[{"id": 1, "total": 1.50}, {"id": 2, "s": "],["}, {"a": [1, {"b": []}]}]',
    b'{"id": 1}\n{"id": 2}\r\n\n{"id": 3}',
    b"id=1&total=2.5&name=M%C3%BCller&tag=a&tag=b&x=",
    b"payload=%7B%22id%22%3A+1%7D",
    b"[" * 60 + b"]" * 60,
]
_SIGNATURES = [b"t=1000,v1=00ff,v1=aa", b"v0=a2114d57", b"sha256=757107ea", b"Basic dTpw", b"1531420618"]


@_target
def webhook_requests(random: Random) -> None:
    body = mutate(random, random.choice(_BODIES), _BODIES)
    for kind in ("json", "ndjson", "form", "raw"):
        try:
            records = split_body(body, "", kind, default="json", strings={"name"})
        except RequestError:
            continue
        if kind == "json" and body.strip().startswith(b"["):
            assert [json.loads(record) for record in records] == json.loads(body), body
        if kind == "form" and not body.strip().startswith(b"payload"):
            assert isinstance(json.loads(records[0]), dict), body
    value = mutate(random, random.choice(_SIGNATURES), _SIGNATURES).decode("latin-1")
    names = ("x-hub-signature-256", "stripe-signature", "x-slack-signature", "x-slack-request-timestamp")
    headers = dict.fromkeys((*names, "authorization", "x-secret"), value)
    for check in ("github", "stripe", "slack", "basic", "header"):
        with suppress(RequestError):
            if check in ("basic", "header"):
                check_headers(check, "x-secret", headers, ["u:not this"])
            else:
                check_body(check, headers, body, ["secret"], 1000, 300)
            raise AssertionError(f"{value!r} is right for {check}")


# CSV and MessagePack, alone and among others

_CSV = decoder("csv?header=true&escape=%5C", "i INT, s STRING, d DECIMAL(6, 2), t TIMESTAMP")
_CSV_LINES = [b"i,s,d,t", b'1,"a,\\"b\\" \xc3\xa9",1.50,2024-05-31T12:30:00Z', b"2,,-0.5,", b""]
_MSGPACK = decoder("msgpack", "i INT, s STRING, a ARRAY<DOUBLE>, m STRUCT<k: INT>, o STRUCT<t: TIMESTAMP>")
_PACKED = [
    b"\x83\xa1i\x01\xa1s\xa1a\xa1a\x92\x01\xcb?\xe0\x00\x00\x00\x00\x00\x00",
    b"\x82\xa1m\x81\xa1k\x02\xa1o\x81\xa1t\xd6\xff\x66\x59\xb2\x08",
    b"\x95\x01\xc0\x90\x80\xc0",
]


@_target
def csv_and_msgpack_records(random: Random) -> None:
    for one, samples in ((_CSV, _CSV_LINES), (_MSGPACK, _PACKED)):
        records = [mutate(random, random.choice(samples), samples) for _ in range(random.randrange(1, 4))]
        alone = [row for record in records for row in row_reprs(one, [record])]
        assert row_reprs(one, records) == alone


# RSVPs

_RSVPS = [b'{"rsvp_id": %d, "mtime": %d, "response": "yes"}' % (n, 1000 + n // 2) for n in range(6)]


@_target
def rsvp_lines(random: Random) -> None:
    lines = [mutate(random, random.choice(_RSVPS), _RSVPS) for _ in range(random.randrange(1, 6))]
    position = Position(None)
    accepted = position.new_lines(lines)
    assert [line.data for line in accepted if line.record is None] == [
        line.data for line in Position(None).new_lines(lines) if line.record is None
    ]
    assert not [line for line in position.new_lines(lines) if _has_key(line.record)]
    resumed = Position(json.loads(json.dumps(position.cursor)))
    assert resumed.params == position.params


def _has_key(record: dict[str, Any] | None) -> bool:
    key = [] if record is None else [record.get(name) for name in ("rsvp_id", "mtime")]
    return bool(key) and all(type(number) is int and 0 <= number < 1 << 63 for number in key)


# Bodies in chunks

_CHUNKED = [
    b"".join(map(chunked, [b"one\n", b"x" * 300, b"\n"])) + b"0\r\n\r\n",
    b"3;name=value\r\nabc\r\n00002\r\nde\r\n0\r\nTrailer: yes\r\n\r\n",
]


@_target
def chunked_bodies(random: Random) -> None:
    data = mutate(random, random.choice(_CHUNKED), _CHUNKED)
    whole, decoder = ChunkDecoder(), ChunkDecoder()
    expected = whole.feed(data)
    content = b"".join(decoder.feed(chunk) for chunk in split(random, data) if decoder.failure is None)
    assert (content, decoder.complete) == (expected, whole.complete)
    assert type(decoder.failure) is type(whole.failure)


# Whole responses, over a socket

_LINES = b'{"n": 1}\n{"n": 2}\r\n\n{"n": 3}\n' * 5
_RESPONSES = [
    b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nContent-Length: %d\r\n\r\n" % len(_LINES)
    + _LINES,
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    + chunked(_LINES[:40])
    + chunked(_LINES[40:])
    + b"0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
    + chunked(gzip.compress(_LINES[:40], mtime=0) + gzip.compress(_LINES[40:], mtime=0))
    + b"0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: deflate\r\nContent-Length: %d\r\n\r\n" % len(zlib.compress(_LINES))
    + zlib.compress(_LINES),
    b"HTTP/1.1 503 Later\r\nRetry-After: 0\r\nContent-Length: 4\r\n\r\nbusy",
    b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n",
]
_MAX_LINE = 10_000


@_target
def responses(random: Random) -> None:
    sample = random.choice(_RESPONSES)
    data = mutate(random, sample, _RESPONSES)
    chunks = split(random, data)

    def respond(exchange: Exchange) -> None:
        for chunk in chunks:
            exchange.send(chunk)

    lines: list[bytes] = []
    with serving(respond) as server:
        http = Http(
            server.url,
            idle_timeout=timedelta(seconds=20),
            retry=timedelta(0),
            max_retries=0,
            max_record_bytes=_MAX_LINE,
        )
        with suppress(HttpError):
            for connection in http.connections():
                for some in connection.lines():
                    lines += some
                http.close()
    assert all(0 < len(line) <= _MAX_LINE for line in lines)
    if data == sample and b" 200 " in sample:
        assert b"".join(line + b"\n" for line in lines) == _LINES.replace(b"\r", b"").replace(b"\n\n", b"\n")


# Messages of the bridge

_MESSAGES = [
    {"id": 1, "ask": "load", "source": "letters", "options": {"length": "5"}},
    {"id": 2, "ask": "acknowledge", "feed": "f1", "cursor": '{"n": 4}'},
    {"id": 3, "ask": "stop", "feed": "f1", "timeoutMs": 5000},
]


@_target
def bridge_messages(random: Random) -> None:
    frames = []
    for message in random.choices(_MESSAGES, k=3):
        body = mutate(random, json.dumps(message).encode())
        length = random.choice([len(body)] * 6 + [len(body) + 1, -1, 1 << 20])
        frames.append(struct.pack(">i", length) + body)
    ours, theirs = socket.socketpair()
    closed: list[bool] = []
    uncaught: list[Any] = []

    def handle(request: Request, reply: Reply) -> None:
        reply.send({})

    class OneConnection:
        def connect(self, role: str) -> socket.socket:
            return ours

    hook, threading.excepthook = threading.excepthook, uncaught.append
    level = logging.getLogger("headwater.bridge").level
    logging.getLogger("headwater.bridge").setLevel(logging.CRITICAL)
    try:
        connection: Any = ControlConnection(OneConnection(), handle, lambda: closed.append(True))  # type: ignore[arg-type]
        with theirs, suppress(OSError):
            for frame in frames:
                theirs.sendall(frame)
            theirs.shutdown(socket.SHUT_WR)
        connection._thread.join()
    finally:
        threading.excepthook = hook
        logging.getLogger("headwater.bridge").setLevel(level)
    assert closed == [True]
    assert not uncaught, uncaught[0].exc_value
