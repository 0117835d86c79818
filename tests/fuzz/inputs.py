"""Bytes for the fuzz targets: valid samples with random edits, cut into random chunks."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

__all__ = ["mutate", "split"]

_TOKENS = [
    b"\0",
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\n",
    b" ",
    b":",
    b'"',
    b'\\"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
]
_TOKENS += [
    b"\xff",
    b"\xc3",
    b"\xe2\x80\xa8",
    b"\xef\xbb\xbf",
    b"\xed\xa0\x80",
    b"\x1b[2J",
    b"0",
    b"-1",
    b"1e999",
]
_TOKENS += [b"9" * 40, b"NaN", b"null", b"data:", b"id:", b"retry: ", b"hwfr", b"\x1f\x8b\x08", b"0\r\n\r\n"]

_MAX_REPEATED_BYTES = 20_000


def mutate(random: Random, sample: bytes, others: Sequence[bytes] = ()) -> bytes:
    """The sample with one to six edits. One in eight samples stays as it is."""
    data = sample
    for _ in range(random.choice([0, 1, 1, 1, 2, 2, 3, 6])):
        data = _edit(random, data, others)
    return data


def split(random: Random, data: bytes) -> list[bytes]:
    """The same bytes in chunks: whole, byte by byte, or cut at a few places."""
    if random.random() < 0.2:
        return [data] if data else []
    if random.random() < 0.2 and len(data) < 2_000:
        return [data[i : i + 1] for i in range(len(data))]
    places = sorted(random.randrange(len(data) + 1) for _ in range(random.randrange(1, 8)))
    parts = [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]
    return [part for part in parts if part]


def _edit(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start = random.randrange(len(data) + 1)
    end = min(len(data), start + random.choice([0, 1, 2, 8, 100]))
    kind = random.randrange(7)
    if kind == 0:
        return data[:start]
    if kind == 1:
        return data[:start] + data[end:]
    if kind == 2:
        return data[:start] + data[start:end] * random.randrange(2, 5) + data[end:]
    if kind == 3 and start < len(data):
        return data[:start] + bytes([data[start] ^ (1 << random.randrange(8))]) + data[start + 1 :]
    if kind == 4 and others:
        other = random.choice(others)
        return data[:start] + other[random.randrange(len(other) + 1) :] + data[end:]
    token = random.choice(_TOKENS)
    if kind == 5:
        token *= random.randrange(1, _MAX_REPEATED_BYTES // len(token))
    return data[:start] + token + data[end:]
