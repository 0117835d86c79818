"""A source's log as a whole: its manifest, and what a scan of its segments finds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from headwater._log.frames import Fault
from headwater._log.numbering import Finding
from headwater._log.scan import Scan, Segment
from headwater._log.segments import Manifest, SegmentName, header_of, manifests, segments
from headwater.errors import HeadwaterError

__all__ = ["Log", "is_log", "read_log"]

_TRIES = 3  # a running query drops segments while they are read


@dataclass(frozen=True, slots=True)
class Log:
    manifest: Manifest | None
    source: str | None
    runs: frozenset[str]
    oldest: int | None  # with which row the oldest segment begins
    next: int | None  # the row that is written next
    segments: list[Segment]
    ranges: list[tuple[int, int]]  # of the rows that are there
    committed: int  # up to and with this row; -1: none
    cursors: dict[str, Any]  # by shard, the last durable one
    findings: list[Finding]

    @property
    def rows(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)

    @property
    def waiting(self) -> int:
        """Rows that Spark has not committed."""
        return sum(max(last - max(first, self.committed + 1) + 1, 0) for first, last in self.ranges)


def is_log(folder: Path) -> bool:
    return bool(segments(folder) or manifests(folder))


def read_log(folder: Path) -> Log:
    """HeadwaterError if a running query is faster."""
    for _ in range(_TRIES):
        try:
            return _read(folder)
        except FileNotFoundError:
            continue
    raise HeadwaterError(
        f"the log in {folder} changes faster than it can be read",
        "stop the query that writes it, and try again",
    )


def _read(folder: Path) -> Log:
    scan = Scan()
    manifest, findings = _manifest(folder, scan)
    names = segments(folder)
    if names and manifest is None and not findings:
        findings.append(Finding("damage", "manifest", 0, "there are segments, and no manifest"))
    fences = _fences(names)
    for i, name in enumerate(names):
        last_of_epoch = i + 1 == len(names) or names[i + 1].epoch != name.epoch
        scan.segment(name, fences.get(name.epoch), last_of_epoch)
    scan.numbering.finish()
    return Log(
        manifest,
        scan.names[max(scan.names)][0] if scan.names else None,
        frozenset(run for _, run in scan.names.values()),
        scan.oldest,
        scan.numbering.next,
        scan.segments,
        scan.numbering.ranges(),
        scan.committed,
        scan.cursors,
        findings + scan.numbering.findings,
    )


def _manifest(folder: Path, scan: Scan) -> tuple[Manifest | None, list[Finding]]:
    """The newest counts; an older one that is wrong harms nobody."""
    found = manifests(folder)
    for _, one in found:
        if isinstance(one, Manifest):
            scan.names[one.epoch] = (one.source, one.run)
    if not found:
        return None, []
    file, newest = found[-1]
    if isinstance(newest, Manifest):
        return newest, []
    return None, [Finding("damage", file, newest.at, newest.what)]


def _fences(names: Sequence[SegmentName]) -> dict[int, int]:
    """By epoch, from which seq on its frames do not count: below every segment of a newer driver."""
    fences: dict[int, int] = {}
    lowest: int | None = None
    for epoch, group in groupby(reversed(names), key=lambda name: name.epoch):
        if lowest is not None:
            fences[epoch] = lowest
        firsts = [first for name in group if (first := _first(name)) is not None]
        lowest = min([*firsts, *([] if lowest is None else [lowest])], default=None)
    return fences


def _first(name: SegmentName) -> int | None:
    with name.path.open("rb") as file:
        header = header_of(file, os.fstat(file.fileno()).st_size)
    return None if isinstance(header, Fault) else header.first
