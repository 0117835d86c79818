"""The files of a log: what they are called, and what they say of themselves before the first row."""

from __future__ import annotations

import os
import re
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from headwater._log.frames import Fault
from headwater._log.texts import parsed, shortened

__all__ = ["Header", "Manifest", "SegmentName", "header_of", "manifests", "segments"]

_SEGMENT = re.compile(r"([0-9]{8})-([0-9]{12})\.segment")
_MANIFEST = re.compile(r"manifest-([0-9]{8})\.json")
_MAGIC, _VERSION = b"HWLOG\0\0", 1
_START = struct.Struct("<7sBII")
_MOST = 64 << 20  # no JSON of ours comes near it


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    epoch: int
    number: int
    path: Path

    @property
    def file(self) -> str:
        return self.path.name


@dataclass(frozen=True, slots=True)
class Header:
    end: int
    source: str
    run: str
    epoch: int
    number: int
    first: int
    cursors: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Manifest:
    source: str
    run: str
    epoch: int
    first: int
    shards: int
    schema: Any


def segments(folder: Path) -> list[SegmentName]:
    """In the order in which they are read."""
    found = ((path, _SEGMENT.fullmatch(path.name)) for path in folder.iterdir())
    return sorted(SegmentName(int(named[1]), int(named[2]), path) for path, named in found if named)


def manifests(folder: Path) -> list[tuple[str, Manifest | Fault]]:
    """By epoch, so the last is the one that counts."""
    files = sorted(path for path in folder.iterdir() if _MANIFEST.fullmatch(path.name))
    return [(path.name, _manifest(path)) for path in files]


def header_of(file: BinaryIO, size: int) -> Header | Fault:
    file.seek(0)
    start = file.read(_START.size)
    if len(start) < _START.size:
        return Fault(0, "the file is empty" if not start else "the file ends within its header")
    magic, version, length, crc = _START.unpack(start)
    if magic != _MAGIC:
        return Fault(0, "the file does not begin as a segment does")
    if version != _VERSION:
        return Fault(0, f"its format has version {version}, this headwater reads version {_VERSION}", False)
    if length > size - _START.size:
        return Fault(0, "the file ends within its header")
    if length > _MOST:
        return Fault(0, f"its header is said to be of {length} bytes, which is not believable")
    data = file.read(length)
    if zlib.crc32(data) != crc:
        return Fault(0, "the CRC of its header is wrong")
    try:
        said = _object(data)
        cursors = said.get("cursors", {})
        if not isinstance(cursors, dict):
            raise ValueError(f"'cursors' is {shortened(cursors)}, it must be an object")
        source, run = _names(said)
        epoch, number, first = (_whole(said, key) for key in ("epoch", "number", "first"))
        return Header(_START.size + length, source, run, epoch, number, first, cursors)
    except ValueError as error:  # its CRC is right, so it was written like this
        return Fault(0, f"its header is not understood: {error}", torn=False)


def _manifest(path: Path) -> Manifest | Fault:
    try:
        if os.path.getsize(path) > _MOST:
            raise ValueError("it is too large")
        said = _object(path.read_bytes())
        source, run = _names(said)
        epoch, first, shards = (_whole(said, key) for key in ("epoch", "first", "shards"))
        if path.name != f"manifest-{epoch:08}.json":
            raise ValueError(f"it says that its epoch is {epoch}")
        return Manifest(source, run, epoch, first, shards, said.get("schema"))
    except ValueError as error:
        return Fault(0, f"the manifest is not understood: {error}", torn=False)


def _object(data: bytes) -> dict[str, Any]:
    said = parsed(data)
    if not isinstance(said, dict):
        raise ValueError("it must be a JSON object")
    if said.get("v") != _VERSION:
        raise ValueError(
            f"its version is {shortened(said.get('v'))}, this headwater reads version {_VERSION}"
        )
    return said


def _names(said: dict[str, Any]) -> tuple[str, str]:
    for key in ("source", "run"):
        if not isinstance(said.get(key), str):
            raise ValueError(f"'{key}' is {shortened(said.get(key))}, it must be a text")
    return said["source"], said["run"]


def _whole(said: dict[str, Any], key: str) -> int:
    value = said.get(key)
    if type(value) is not int or value < 0:
        raise ValueError(f"'{key}' is {shortened(value)}, it must be a whole number from 0")
    return value
