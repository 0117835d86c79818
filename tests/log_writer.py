"""A writer of the log's format, made from its description alone: what the reader is tested against.

`python tests/log_writer.py` writes the golden files again.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).resolve().parent / "golden" / "log-v1"
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


def frame(
    seq: int,
    rows: int = 1,
    *,
    kind: int = 1,
    more: bool = False,
    group: bool = False,
    cursor: Any = None,
    shard: int = 0,
    payload: bytes | None = None,
    compression: int = 0,
    raw: int | None = None,
    note: bytes | None = None,
    stored: int | None = None,
    noted: int | None = None,
) -> bytes:
    """The last three make frames that lie."""
    payload = (b"rows %d+%d " % (seq, rows) if rows else b"") if payload is None else payload
    if note is None:
        note = b"" if cursor is None else compact({"shard": shard, "cursor": cursor})
    covered = struct.pack(
        "<BBBBiqiiIi",
        kind,
        compression,
        more | group << 1,
        0,
        rows,
        seq,
        len(payload) if stored is None else stored,
        len(payload) if raw is None else raw,
        zlib.crc32(payload),
        len(note) if noted is None else noted,
    )
    return b"hwfr" + struct.pack("<I", zlib.crc32(covered + note)) + covered + note + payload


def commit(seq: int, *, group: bool = True) -> bytes:
    return frame(seq, 0, kind=2, group=group, payload=b"")


def segment(
    first: int,
    frames: Sequence[bytes] = (),
    *,
    epoch: int = 1,
    number: int = 0,
    cursors: dict[str, Any] | None = None,
    run: str = RUN,
    arrow_schema: str = "",
) -> bytes:
    fields = compact(
        {
            "v": 1,
            "source": "letters",
            "run": run,
            "epoch": epoch,
            "number": number,
            "first": first,
            "arrowSchema": arrow_schema,
            "cursors": cursors or {},
        }
    )
    start = b"HWLOG\0\0\1" + struct.pack("<II", len(fields), zlib.crc32(fields))
    return start + fields + b"".join(frames)


@dataclass
class Folder:
    """A checkpoint with one source."""

    path: Path

    @property
    def log(self) -> Path:
        return self.path / "sources" / "0"

    def manifest(self, epoch: int = 1, **changed: Any) -> None:
        self.log.mkdir(parents=True, exist_ok=True)
        fields = {"v": 1, "source": "letters", "run": RUN, "epoch": epoch, "first": 0, "shards": 1}
        fields = {**fields, "schema": SCHEMA, "identity": {"url": "x"}, **changed}
        (self.log / f"manifest-{epoch:08}.json").write_bytes(compact(fields) + b"\n")

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


def write_golden(folder: Path) -> None:
    """Two segments with one of each that the format has: parcels, groups, compressions, cursors, commits."""
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
    fields = {"v": 1, "source": "letters", "run": RUN, "epoch": 1, "first": 0, "shards": 2, "schema": SCHEMA}
    (folder / "manifest-00000001.json").write_bytes(compact({**fields, "identity": {"url": "x"}}) + b"\n")
    first = [
        frame(0, 3, group=True, payload=rows(0, 3), cursor={"id": 2}),
        frame(3, 2, payload=rows(3, 2), more=True),
        frame(5, 1, payload=rows(5, 1), cursor="b-5", shard=1),
        commit(2),
    ]
    second = [
        frame(6, 2, group=True, **packed("lz4_raw", rows(6, 2))),
        frame(8, 4, group=True, **packed("zstd", rows(8, 4)), cursor={"id": 11}),
        frame(12, 0, cursor=None, note=compact({"shard": 0, "cursor": {"id": 14}})),
        commit(7),
    ]
    cursors = {"0": {"id": 2}, "1": "b-5"}
    (folder / "00000001-000000000000.segment").write_bytes(segment(0, first, arrow_schema=arrow))
    (folder / "00000001-000000000001.segment").write_bytes(
        segment(6, second, number=1, cursors=cursors, arrow_schema=arrow)
    )


if __name__ == "__main__":
    write_golden(GOLDEN)
