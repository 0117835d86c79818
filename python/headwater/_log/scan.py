"""The segments of a log from their first byte to their last, each rule of the format in its place.

Only one frame's head and note are in memory at a time; payloads are read to check them, in pieces.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, BinaryIO

from headwater._log.frames import COMMIT, Fault, Frame, durable_behind, frame_at
from headwater._log.numbering import Finding, Numbering
from headwater._log.segments import Header, SegmentName, header_of
from headwater._log.texts import shortened, span

__all__ = ["Scan", "Segment"]


@dataclass(slots=True)
class Segment:
    """`first` and `last` of the rows in it that count; None where there are none."""

    file: str
    size: int
    frames: int = 0
    rows: int = 0
    first: int | None = None
    last: int | None = None

    def add(self, first: int, last: int) -> None:
        self.rows += last - first + 1
        self.first = first if self.first is None else self.first
        self.last = last


class Scan:
    """What is known after the segments seen so far; they come in order, by epoch and number."""

    def __init__(self) -> None:
        self.numbering = Numbering()
        self.segments: list[Segment] = []
        self.names: dict[int, tuple[str, str]] = {}  # source and run, by epoch
        self.oldest: int | None = None  # with which row the oldest segment begins
        self.committed = -1
        self.cursors: dict[str, Any] = {}
        self._waiting: dict[str, Any] = {}  # cursors of a parcel whose end has not come

    def segment(self, name: SegmentName, fence: int | None, last_of_epoch: bool) -> None:
        """`fence`: from which seq on its frames do not count, for a newer driver wrote those rows."""
        with name.path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            self.segments.append(Segment(name.file, size))
            self._waiting.clear()
            header = header_of(file, size)
            if isinstance(header, Fault):
                self._without_header(name.file, file, size, header, last_of_epoch)
                begin, fenced = size, False  # whose its rows are is not known: none of them counts
            else:
                begin = header.end
                fenced = fence is not None and header.first >= fence
                self._begin(name, header, fenced)
            end = self._frames(file, begin, fence, fenced)
            self.numbering.end_segment(name.file, end)

    def _begin(self, name: SegmentName, header: Header, fenced: bool) -> None:
        whose, place = (header.source, header.run), (header.epoch, header.number)
        known = self.names.setdefault(name.epoch, whose)
        if known != whose or place != (name.epoch, name.number):  # renamed, or copied from another log
            of = f"source {whose[0]}, run {whose[1]}, epoch {place[0]}, number {place[1]}"
            what = f"its header is that of {shortened(of, 200)}"
            self.numbering.findings.append(Finding("damage", name.file, 0, what))
        self.cursors = header.cursors
        if self.oldest is None:
            self.oldest = header.first
        if not fenced:
            self.numbering.reach(header.first, name.file, 0, "the segment begins with row")

    def _without_header(
        self, name: str, file: BinaryIO, size: int, fault: Fault, last_of_epoch: bool
    ) -> None:
        certain = durable_behind(file, 0, size) is not None or not fault.torn or not last_of_epoch
        self.numbering.fault(name, fault.at, fault.what, certain=certain)

    def _frames(self, file: BinaryIO, at: int, fence: int | None, fenced: bool) -> int:
        """Gives where the valid part ends."""
        segment = self.segments[-1]
        replaced: list[Frame] = []  # the first and the last whose rows a newer driver wrote
        while at < segment.size:
            found = frame_at(file, at, segment.size)
            if isinstance(found, Fault):
                durable = durable_behind(file, at, segment.size)
                self._fault(found, durable, fence, fenced)
                if durable is None:
                    break
                found = durable
            segment.frames += 1
            if fence is None or found.seq < fence:
                self._count(segment, found)
            elif found.rows:
                replaced[1:] = [found]
            at = found.end
        if replaced:
            rows = span(replaced[0].seq, replaced[-1].seq + replaced[-1].rows - 1)
            what = f"{rows} here do not count, a newer driver had taken over before them"
            self.numbering.ignore(segment.file, replaced[0].at, what)
        return at

    def _fault(self, fault: Fault, durable: Frame | None, fence: int | None, fenced: bool) -> None:
        file, comes = self.segments[-1].file, self.numbering.next
        self._waiting.clear()
        if fenced or (fence is not None and comes is not None and comes >= fence):
            self.numbering.ignore(file, fault.at, f"{fault.what}, behind all that counts")
        else:
            certain = durable is not None or not fault.torn
            self.numbering.fault(file, fault.at, fault.what, certain=certain)

    def _count(self, segment: Segment, frame: Frame) -> None:
        if frame.kind == COMMIT:
            self.committed = max(self.committed, frame.seq)
            return
        self.numbering.reach(frame.seq, segment.file, frame.at, "the frame is numbered")
        whole = self.numbering.add(frame.rows, frame.more)
        if whole:
            segment.add(*whole)
        if frame.cursor:
            self._waiting[frame.cursor[0]] = frame.cursor[1]
        if not frame.more:
            self.cursors.update(self._waiting)
            self._waiting.clear()
