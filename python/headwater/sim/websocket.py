"""A WebSocket server whose events are numbered and have a time to resume from, as Bluesky's Jetstream has."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import struct
import threading
from typing import Any, ClassVar

from headwater.sim.server import RefusedError, Reply, Request, Sim
from headwater.sim.words import LAST_NAMES, TOPICS

__all__ = ["WebSocketSim"]

_ACCEPT_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # of RFC 6455
_TEXT, _CLOSE, _PING, _PONG = 1, 8, 9, 10
_NORMAL_CLOSURE = struct.pack(">H", 1000)
_MAX_MESSAGE_BYTES = 1 << 20


class WebSocketSim(Sim):
    """Serves `ws://…/subscribe`: new events, or with `?cursor=` those of that time in microseconds and later.

    An event is a JSON object with `seq`, which counts events, `time_us`, which several events may share, and
    made-up fields. Settings, faults, `sent`, `requests` and `faults_come` are those of the other simulators;
    `End` closes a connection properly, with code 1000. `messages` are the texts that readers have sent.

    >>> with WebSocketSim(seed=1, rate=0, count=3) as sim:
    ...     print(sim.url.partition("/subscribe")[1], sim.record(2)["seq"], sim.record(2)["kind"])
    /subscribe 2 commit
    """

    path: ClassVar[str] = "/subscribe"

    def __init__(self, *args: Any, **more: Any) -> None:
        self._messages: list[str] = []
        self._messages_lock = threading.Lock()
        super().__init__(*args, **more)

    @property
    def url(self) -> str:
        """The URL of the feed."""
        return super().url.replace("http", "ws", 1)

    @property
    def messages(self) -> list[str]:
        """The texts that readers have sent, in order."""
        with self._messages_lock:
            return list(self._messages)

    def answer(self, request: Request) -> Reply:
        """The events that a request is for, by its `cursor`."""
        if request.path != self.path:
            raise RefusedError(404, f"there is nothing at {request.path}; events are at {self.path}")
        key = request.headers.get("sec-websocket-key")
        if key is None or request.headers.get("upgrade", "").lower() != "websocket":
            raise RefusedError(426, "this is a WebSocket")
        digest = hashlib.sha1((key + _ACCEPT_GUID).encode(), usedforsecurity=False).digest()
        return Reply(
            content_type="",
            start=self._start(request.query.get("cursor")),
            encode=lambda n: json.dumps(self.record(n), ensure_ascii=False).encode(),
            bad=b'{"seq":17,"time_us":',
            keep_alive=_frame(_PING, b""),
            frame=lambda data: _frame(_TEXT, data),
            last=_frame(_CLOSE, _NORMAL_CLOSURE),
            handshake={
                "Upgrade": "websocket",
                "Connection": "Upgrade",
                "Sec-WebSocket-Accept": base64.b64encode(digest).decode(),
            },
            respond=_Reader(self._add_message).respond,
        )

    def record(self, n: int) -> dict[str, Any]:
        """Event n: the same for the same seed, except for its time."""
        dice = random.Random(f"{self.seed}/{n}")  # noqa: S311
        return {
            "seq": n,
            "time_us": self.timeline.stamp(n) * 1000,
            "kind": dice.choice(("commit", "commit", "commit", "identity", "account")),
            "did": f"did:plc:{dice.randrange(40):024}",
            "name": dice.choice(LAST_NAMES),
            "text": dice.choice(TOPICS)[1],
        }

    def _start(self, cursor: str | None) -> int:
        if cursor is None:
            return self.timeline.live
        if not cursor.isdecimal() or len(cursor) > 20:
            raise RefusedError(400, f"cursor is '{cursor[:50]}', it must be a time in microseconds")
        return self.timeline.first_from(-(-int(cursor) // 1000))

    def _add_message(self, text: str) -> None:
        with self._messages_lock:
            self._messages.append(text)


def _frame(opcode: int, data: bytes) -> bytes:
    """An unmasked frame with a whole message, as servers send it.

    >>> _frame(_TEXT, b"hi"), len(_frame(_TEXT, b"x" * 200)), len(_frame(_TEXT, b"x" * 70_000))
    (b'\\x81\\x02hi', 204, 70010)
    """
    if len(data) < 126:
        size = bytes([len(data)])
    elif len(data) < 1 << 16:
        size = b"\x7e" + struct.pack(">H", len(data))
    else:
        size = b"\x7f" + struct.pack(">Q", len(data))
    return bytes([0x80 | opcode]) + size + data


class _Reader:
    """Parses what one reader sends, which is masked, and answers pings and its wish to close."""

    def __init__(self, add_message: Any) -> None:
        self._add_message = add_message
        self._buffer = b""
        self._message = b""

    def respond(self, data: bytes) -> bytes | None:
        """What to send; None if the connection is over."""
        self._buffer += data
        responses = b""
        while (frame := self._next_frame()) is not None:
            is_last, opcode, payload = frame
            if opcode == _CLOSE:
                return None
            if opcode == _PING:
                responses += _frame(_PONG, payload)
            elif opcode < _CLOSE:
                self._message += payload
                if is_last:
                    self._add_message(self._message.decode("utf-8", "replace"))
                    self._message = b""
        return None if len(self._buffer) + len(self._message) > _MAX_MESSAGE_BYTES else responses

    def _next_frame(self) -> tuple[bool, int, bytes] | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        start, size = 2, buffer[1] & 0x7F
        if size > 125:
            width = 2 if size == 126 else 8
            start, size = 2 + width, int.from_bytes(buffer[2 : 2 + width], "big")
        end = start + 4 + size
        if len(buffer) < end:
            return None
        mask, masked = buffer[start : start + 4], buffer[start + 4 : end]
        self._buffer = buffer[end:]
        payload = bytes(byte ^ mask[i % 4] for i, byte in enumerate(masked))
        return bool(buffer[0] & 0x80), buffer[0] & 0x0F, payload
