"""One frame of a segment: found to be whole, or said to be none."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from headwater._log.texts import parsed

__all__ = ["COMMIT", "DURABLE", "MORE", "Fault", "Frame", "durable_behind", "frame_at"]

COMMIT = 2  # a kind
MORE, DURABLE = 1, 2  # flags

_MARK = b"hwfr"
_HEAD = struct.Struct("<4sIBBBBiqiiIi")
_MOST_NOTE = 16 << 20
_MOST_PAYLOAD = 96 << 20
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Frame:
    at: int
    end: int
    kind: int
    flags: int
    rows: int
    seq: int
    cursor: tuple[str, Any] | None  # of which shard, and where it stands

    @property
    def more(self) -> bool:
        return bool(self.flags & MORE)


@dataclass(frozen=True, slots=True)
class Fault:
    """Why nothing valid stands somewhere. `torn`: a write that did not end can look like this."""

    at: int
    what: str
    torn: bool = True


def frame_at(file: BinaryIO, at: int, size: int) -> Frame | Fault:
    """Nothing is believed, and no length is used, before it is within its bounds and within the file."""
    file.seek(at)
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size or at + _HEAD.size > size:
        return Fault(at, "the file ends within the head of a frame")
    mark, crc, kind, compression, flags, _, rows, seq, stored, raw, payload_crc, noted = _HEAD.unpack(head)
    if mark != _MARK:
        return Fault(at, "no frame begins here")
    lengths = 0 <= noted <= _MOST_NOTE and 0 <= stored <= _MOST_PAYLOAD and 0 <= raw <= _MOST_PAYLOAD
    if not (lengths and 1 <= kind <= COMMIT and compression <= 2 and flags <= 3 and rows >= 0 and seq >= 0):
        return Fault(at, "the head of the frame is not believable")
    if at + _HEAD.size + noted > size:
        return Fault(at, "the file ends within the note of a frame")
    note = file.read(noted)
    if zlib.crc32(note, zlib.crc32(head[8:])) != crc:
        return Fault(at, "the CRC of the frame's head is wrong")
    if at + _HEAD.size + noted + stored > size:
        return Fault(at, "the file ends within the payload of a frame")
    if _crc(file, stored) != payload_crc:
        return Fault(at, "the CRC of the frame's payload is wrong")
    try:
        cursor = _cursor(note) if note else None
    except ValueError as error:  # its CRC is right, so it was written like this
        return Fault(at, f"the note of the frame is not understood: {error}", torn=False)
    return Frame(at, at + _HEAD.size + noted + stored, kind, flags, rows, seq, cursor)


def durable_behind(file: BinaryIO, at: int, size: int) -> Frame | None:
    """The next frame whose writer knew that all before it was durable; so what is wrong at `at` was too."""
    passed = at
    for mark in _marks(file, at + 1, size):
        if mark <= passed:
            continue  # within a frame that is whole: part of its rows
        found = frame_at(file, mark, size)
        if isinstance(found, Frame):
            if found.flags & DURABLE:
                return found
            passed = found.end - 1
    return None


def _marks(file: BinaryIO, at: int, size: int) -> Iterator[int]:
    while at < size:
        file.seek(at)
        piece = file.read(min(_PIECE, size - at))
        if len(piece) < len(_MARK):
            return
        found = piece.find(_MARK)
        while found >= 0:
            yield at + found
            found = piece.find(_MARK, found + 1)
        at += len(piece) - len(_MARK) + 1  # a mark may lie across two pieces


def _crc(file: BinaryIO, length: int) -> int:
    crc = 0
    while length > 0:
        piece = file.read(min(_PIECE, length))
        if not piece:
            return -1  # cut while it is read
        crc = zlib.crc32(piece, crc)
        length -= len(piece)
    return crc


def _cursor(note: bytes) -> tuple[str, Any]:
    said = parsed(note)
    if not isinstance(said, dict) or type(said.get("shard")) is not int or "cursor" not in said:
        raise ValueError("it must hold a shard and a cursor")
    return str(said["shard"]), said["cursor"]
