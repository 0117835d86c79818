"""A writer of the log's format, made from its description alone: what the reader is tested against.

`python tests/log_writer.py` writes the golden files again.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).resolve().parent / "golden"
KEY = "00112233445566778899aabbccddeeff"
RUN = "0123456789abcdef"
SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "n", "type": "integer", "nullable": True, "metadata": {}},
        {"name": "word", "type": "string", "nullable": True, "metadata": {}},
    ],
}


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


@dataclass(frozen=True)
class Frame:
    """A frame, which in format 2 has other bytes at each position."""

    kind: int
    compression: int
    flags: int
    shard: int
    rows: int
    seq: int
    arrived: int
    payload: bytes
    cursor: Any
    note: bytes | None
    lengths: dict[str, int]

    def at(
        self, position: int, version: int = 2, *, epoch: int = 1, number: int = 0, key: str = KEY
    ) -> bytes:
        note = self._note(version)
        lengths = {"stored": len(self.payload), "raw": len(self.payload), "noted": len(note), **self.lengths}
        start = struct.pack("<BBBB", self.kind, self.compression, self.flags, 0)
        payload = struct.pack("<iiI", lengths["stored"], lengths["raw"], zlib.crc32(self.payload))
        if version == 1:
            covered = (
                start
                + struct.pack("<iq", self.rows, self.seq)
                + payload
                + struct.pack("<i", lengths["noted"])
            )
            head = b"hwfr" + struct.pack("<I", zlib.crc32(covered + note)) + covered
        else:
            covered = start + struct.pack("<iiqq", self.shard, self.rows, self.seq, self.arrived) + payload
            covered += struct.pack("<iI", lengths["noted"], zlib.crc32(note))
            head = b"hwf2" + checksum(covered, position, epoch=epoch, number=number, key=key) + covered
        return head + note + self.payload

    def size(self, version: int = 2) -> int:
        return len(self.at(0, version))

    def _note(self, version: int) -> bytes:
        if self.note is not None or self.cursor is None:
            return self.note or b""
        return compact({"shard": self.shard, "cursor": self.cursor} if version == 1 else self.cursor)


def checksum(covered: bytes, position: int, *, epoch: int = 1, number: int = 0, key: str = KEY) -> bytes:
    """Of the header of a frame in format 2."""
    bound = bytes.fromhex(key) + struct.pack("<qqq", epoch, number, position)
    return hashlib.sha256(bound + covered).digest()[:8]


def frame(
    seq: int,
    rows: int = 1,
    *,
    kind: int = 1,
    more: bool = False,
    group: bool = False,
    cursor: Any = None,
    shard: int = 0,
    arrived: int = 0,
    payload: bytes | None = None,
    compression: int = 0,
    note: bytes | None = None,
    **lengths: int,
) -> Frame:
    """`stored`, `raw` and `noted` are lengths that are not what they should be."""
    payload = (b"rows %d+%d " % (seq, rows) if rows else b"") if payload is None else payload
    flags = more | group << 1
    return Frame(kind, compression, flags, shard, rows, seq, arrived, payload, cursor, note, lengths)


def commit(seq: int, *, group: bool = True) -> Frame:
    return frame(seq, 0, kind=2, group=group, payload=b"")


def segment(
    first: int,
    frames: Sequence[Frame | bytes] = (),
    *,
    version: int = 2,
    epoch: int = 1,
    number: int = 0,
    cursors: dict[str, Any] | None = None,
    run: str = RUN,
    arrow_schema: str = "",
    arrived: int = 0,
    **more: Any,
) -> bytes:
    """Bytes among the frames are written as they are."""
    fields = {"v": version, "source": "letters", "run": run, "key": KEY, "epoch": epoch, "number": number}
    fields = {
        **fields,
        "first": first,
        "arrived": arrived,
        "arrowSchema": arrow_schema,
        "cursors": cursors or {},
    }
    if version == 1:
        del fields["key"], fields["arrived"]
    text = compact({**fields, **more})
    data = b"HWLOG\0\0" + struct.pack("<BII", version, len(text), zlib.crc32(text)) + text
    for one in frames:
        data += one.at(len(data), version, epoch=epoch, number=number) if isinstance(one, Frame) else one
    return data


def manifest(version: int = 2, epoch: int = 1, **changed: Any) -> bytes:
    fields = {"v": version, "source": "letters", "run": RUN, "key": KEY, "epoch": epoch}
    fields = {**fields, "first": 0, "next": changed.get("first", 0), "shards": 1}
    fields = {**fields, "schema": SCHEMA, "identity": {"url": "x"}, **changed}
    if version == 1:
        del fields["key"], fields["next"]
        return compact(fields) + b"\n"
    text = compact(fields)
    return text[:-1] + b',"crc":%d}' % zlib.crc32(text)


@dataclass
class Folder:
    """A checkpoint with one source."""

    path: Path

    @property
    def log(self) -> Path:
        return self.path / "sources" / "0"

    def manifest(self, epoch: int = 1, version: int = 2, **changed: Any) -> Path:
        self.log.mkdir(parents=True, exist_ok=True)
        path = self.log / f"manifest-{epoch:08}.json"
        path.write_bytes(manifest(version, epoch, **changed))
        return path

    def put(self, number: int, data: bytes, epoch: int = 1) -> Path:
        self.log.mkdir(parents=True, exist_ok=True)
        path = self.log / f"{epoch:08}-{number:012}.segment"
        path.write_bytes(data)
        return path

    def offset(self, batch: int, *lines: str, version: str = "v1") -> None:
        self._text("offsets", batch, [version, '{"batchWatermarkMs":0,"batchTimestampMs":1}', *lines])

    def committed(self, batch: int) -> None:
        self._text("commits", batch, ["v1", '{"nextBatchWatermarkMs":0}'])

    def _text(self, folder: str, batch: int, lines: Sequence[str]) -> None:
        (self.path / folder).mkdir(parents=True, exist_ok=True)
        (self.path / folder / str(batch)).write_text("\n".join(lines))
        (self.path / folder / f".{batch}.crc").write_bytes(b"crc")
        (self.path / folder / f".{batch + 1}.0a1b.tmp").write_bytes(b"")


def offset(seq: int, *, run: str = RUN, log: bool = True) -> str:
    fields = {"v": 1, "source": "letters", "run": run, "seq": seq}
    return compact({**fields, "durability": "log"} if log else fields).decode()


def write_golden(folder: Path, first_version: int, second_version: int) -> None:
    """Two segments with all that the format has: row groups, groups, compressions, cursors, commits."""
    import base64

    import pyarrow as pa

    schema = pa.schema([("n", pa.int32()), ("word", pa.string())])

    def rows(first: int, count: int) -> bytes:
        numbers = range(first, first + count)
        batch = pa.record_batch([list(numbers), [chr(97 + n) for n in numbers]], schema=schema)
        return bytes(batch.serialize())

    def packed(codec: str, data: bytes) -> dict[str, Any]:
        done = pa.Codec(codec).compress(data, asbytes=True)
        return {"payload": done, "raw": len(data), "compression": {"lz4_raw": 1, "zstd": 2}[codec]}

    arrow = base64.b64encode(bytes(schema.serialize())).decode()
    folder.mkdir(parents=True, exist_ok=True)
    # A start that finds format 1 begins a new epoch.
    epoch, number = (1, 1) if first_version == second_version else (2, 0)
    name = folder / f"manifest-{epoch:08}.json"
    name.write_bytes(
        manifest(second_version, epoch, shards=2, **({} if second_version == 1 else {"next": 8}))
    )
    time = 1_700_000_000_000_000
    first = [
        frame(0, 3, group=True, payload=rows(0, 3), cursor={"id": 2}, arrived=time),
        frame(3, 2, payload=rows(3, 2), more=True, shard=1, arrived=time + 1),
        frame(5, 1, payload=rows(5, 1), cursor="b-5", shard=1, arrived=time + 2),
        commit(2),
    ]
    later = time + 60_000_000
    second = [
        frame(6, 2, group=True, **packed("lz4_raw", rows(6, 2)), arrived=later),
        frame(8, 4, group=True, **packed("zstd", rows(8, 4)), cursor={"id": 11}, arrived=later + 1),
        frame(12, 0, cursor={"id": 14}),
        commit(7),
    ]
    cursors = {"0": {"id": 2}, "1": "b-5"}
    (folder / "00000001-000000000000.segment").write_bytes(
        segment(0, first, version=first_version, arrow_schema=arrow, arrived=time)
    )
    (folder / f"{epoch:08}-{number:012}.segment").write_bytes(
        segment(
            6,
            second,
            version=second_version,
            epoch=epoch,
            number=number,
            cursors=cursors,
            arrow_schema=arrow,
            arrived=later,
        )
    )


if __name__ == "__main__":
    write_golden(GOLDEN / "log-v1", 1, 1)
    write_golden(GOLDEN / "log-v2", 2, 2)
    write_golden(GOLDEN / "log-v1-and-v2", 1, 2)
