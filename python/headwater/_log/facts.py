"""What is known of a checkpoint as plain values, for --json. The names are a promise."""

from __future__ import annotations

from typing import Any

from headwater._log.checkpoint import Checkpoint, Source
from headwater._log.numbering import Finding
from headwater._log.offsets import Offset
from headwater._log.reading import Log
from headwater._log.texts import schema_text

__all__ = ["shown", "verified"]

_VERSION = 1


def shown(found: Checkpoint) -> dict[str, Any]:
    return {
        "v": _VERSION,
        "checkpoint": str(found.path),
        "spark": {
            "offset": found.offset,
            "commit": found.commit,
            "again": found.again,
            "problem": found.problem,
        },
        "sources": [_source(source) for source in found.sources],
    }


def verified(found: Checkpoint) -> dict[str, Any]:
    """Logs only: nothing else has anything that could be checked."""
    return {
        "v": _VERSION,
        "checkpoint": str(found.path),
        "sound": not found.damaged,
        "problem": found.problem,
        "logs": [
            {
                "folder": source.folder,
                "source": source.name,
                "segments": len(source.log.segments) if source.log else 0,
                "frames": sum(one.frames for one in source.log.segments) if source.log else 0,
                "bytes": sum(one.size for one in source.log.segments) if source.log else 0,
                "rows": source.log.rows if source.log else 0,
                **_findings(source.findings),
            }
            for source in found.sources
            if source.kind == "log"
        ],
    }


def _source(source: Source) -> dict[str, Any]:
    again = source.again
    return {
        "folder": source.folder,
        "kind": source.kind,
        "source": source.name,
        **(_log(source.log) if source.log else {}),
        "offset": _offset(source.offset),
        "commit": _offset(source.committed),
        "again": again
        and {
            "batch": again.batch,
            "rows": _pair(again.rows),
            "complete": not again.missing,
            "missing": [list(gap) for gap in again.missing],
        },
        **_findings(source.findings),
    }


def _log(log: Log) -> dict[str, Any]:
    manifest = log.manifest
    return {
        "run": manifest and manifest.run,
        "epoch": manifest and manifest.epoch,
        "shards": manifest and manifest.shards,
        "schema": manifest and schema_text(manifest.schema),
        "rows": {
            "retained": log.rows,
            "committed": log.rows - log.waiting,
            "waiting": log.waiting,
            "ranges": [list(one) for one in log.ranges],
            "committedUpTo": log.committed,
        },
        "cursors": log.cursors,
        "segments": [
            {
                "file": one.file,
                "bytes": one.size,
                "frames": one.frames,
                "rows": one.rows,
                "first": one.first,
                "last": one.last,
            }
            for one in log.segments
        ],
    }


def _offset(offset: Offset | None) -> dict[str, Any] | None:
    if offset is None:
        return None
    return {"run": offset.run, "seq": offset.seq, "durability": "log" if offset.log else "memory"}


def _findings(findings: list[Finding]) -> dict[str, Any]:
    def of(kind: str) -> list[dict[str, Any]]:
        return [{"file": one.file, "at": one.at, "what": one.what} for one in findings if one.kind == kind]

    damage = [
        {"file": one.file, "at": one.at, "what": one.what, "lost": _pair(one.lost)}
        for one in findings
        if one.kind == "damage"
    ]
    return {"damage": damage, "torn": of("torn"), "ignored": of("ignored")}


def _pair(rows: tuple[int, int | None] | None) -> list[int | None] | None:
    return rows and list(rows)
