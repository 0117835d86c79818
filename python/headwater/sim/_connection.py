"""One response: records at their pace, each in an HTTP chunk of its own, and the faults among them."""

from __future__ import annotations

import selectors
import socket
import struct
from collections.abc import Callable

from headwater.sim import _faults
from headwater.sim._armed import Armed
from headwater.sim._protocol import Answer
from headwater.sim._timeline import Timeline

__all__ = ["Connection"]

_AT_ONCE = 64 * 1024
_LAST_CHUNK = b"0\r\n\r\n"


class _OverError(Exception):
    """Nothing more goes out here."""


class Connection:
    """`stopped` is a socket that becomes readable when the simulator stops; `note` is told what is sent."""

    def __init__(
        self,
        reader: socket.socket,
        stopped: socket.socket,
        timeline: Timeline,
        armed: Armed,
        answer: Answer,
        note: Callable[[list[int]], None],
        keep_alive_seconds: float,
    ) -> None:
        self._reader = reader
        self._timeline = timeline
        self._armed = armed
        self._answer = answer
        self._note = note
        self._keep_alive_seconds = keep_alive_seconds if answer.keep_alive else None
        self._either = selectors.DefaultSelector()
        self._either.register(reader, selectors.EVENT_READ)  # a reader sends nothing: it has gone
        self._either.register(stopped, selectors.EVENT_READ)

    def run(self) -> None:
        """Until the reader goes, the simulator stops, or a fault ends it."""
        try:
            if self._answer.greeting:
                self._reader.sendall(_chunk(self._answer.greeting))
            n = self._answer.start
            while True:
                self._wait_for(n)
                n = self._send_from(n)
        except (_OverError, OSError):
            pass
        finally:
            self._either.close()

    def _wait_for(self, n: int) -> None:
        while (left := self._timeline.seconds_to(n)) != 0:
            if left is not None and (self._keep_alive_seconds is None or left < self._keep_alive_seconds):
                self._pause(left)
            elif self._keep_alive_seconds is None:
                self._pause(None)
            else:
                self._pause(self._keep_alive_seconds)
                self._reader.sendall(_chunk(self._answer.keep_alive))

    def _pause(self, seconds: float | None) -> None:
        if self._either.select(seconds):
            raise _OverError

    def _send_from(self, n: int) -> int:
        """Sends what is there, up to the next fault; gives the number of the record to go on with."""
        chunks, numbers, size, end = list[bytes](), list[int](), 0, self._timeline.made
        while n < end and size < _AT_ONCE:
            data = self._answer.encode(n)
            if data and (fault := self._armed.at_record(n, data)):
                self._send(chunks, numbers)
                return self._suffer(fault, n, data)
            if data:
                chunks.append(_chunk(data))
                numbers.append(n)
                size += len(data)
            n += 1
        self._send(chunks, numbers)
        return n

    def _send(self, chunks: list[bytes], numbers: list[int]) -> None:
        """Told before it is done: who has read a record may ask for it in what was sent."""
        if chunks:
            self._note(numbers)
            self._reader.sendall(b"".join(chunks))

    def _suffer(self, fault: _faults.Fault, n: int, data: bytes) -> int:
        match fault:
            case _faults.Stall():
                self._pause(fault.seconds)
            case _faults.Repeat():
                self._repeat(n, fault.count)
            case _faults.Skip():
                return self._behind(n, fault.count)
            case _faults.BadRecord():
                self._reader.sendall(_chunk(self._answer.bad))
            case _:
                self._end(fault, data)
        return n

    def _end(self, fault: _faults.Fault, data: bytes) -> None:
        if isinstance(fault, _faults.End):
            self._reader.sendall(_LAST_CHUNK)
        elif isinstance(fault, _faults.Reset):
            self._reader.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif isinstance(fault, _faults.CutMidRecord):
            self._send_part(data, len(data) // 2)
        elif isinstance(fault, _faults.CutMidCharacter):
            self._send_part(data, next(i for i, byte in enumerate(data) if byte > 127) + 1)
        raise _OverError

    def _send_part(self, data: bytes, size: int) -> None:
        self._reader.sendall(b"%x\r\n" % len(data) + data[:size])

    def _repeat(self, n: int, count: int) -> None:
        numbers: list[int] = []
        while n > 0 and len(numbers) < count:
            n -= 1
            if self._answer.encode(n):
                numbers.insert(0, n)
        self._send([_chunk(self._answer.encode(number)) for number in numbers], numbers)

    def _behind(self, n: int, count: int) -> int:
        """The number after `count` records that this reader wants."""
        while count > 0 and n < self._timeline.end:
            count -= bool(self._answer.encode(n))
            n += 1
        return n


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
