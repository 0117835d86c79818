"""Which rows are there. Rows are numbered without a gap; where they are not, something is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from headwater._log.texts import span

__all__ = ["Finding", "Numbering", "missing"]


@dataclass(frozen=True, slots=True)
class Finding:
    """`torn`: a write that never ended; `ignored`: what does not count. Only damage loses rows."""

    kind: Literal["damage", "torn", "ignored"]
    file: str
    at: int
    what: str
    lost: tuple[int, int | None] | None = None


@dataclass(frozen=True, slots=True)
class _Open:
    """Something wrong, of which only the next number tells what is lost with it."""

    file: str
    at: int
    what: str
    certain: bool


class Numbering:
    """Fed with the numbers as they stand in the files, in order; `findings` says what is wrong with them."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.next: int | None = None  # after the last frame
        self._whole: int | None = None  # after the last parcel of which all frames are there
        self._open: list[_Open] = []
        self._ranges: list[tuple[int, int]] = []

    def reach(self, seq: int, file: str, at: int, who: str) -> None:
        """Here the rows go on with `seq`; `who` says so."""
        whole, expected = self._whole, self.next
        lost = (whole, seq - 1) if whole is not None and seq > whole else None
        if self._open:
            self._settle(lost, fits=whole in (None, seq))
        elif expected is not None and seq != expected:
            self._damage(file, at, f"{who} {seq} where {expected} comes next", lost)
        elif expected is not None:
            return
        self.next = self._whole = seq

    def add(self, rows: int, more: bool) -> tuple[int, int] | None:
        """The rows from `next` on; gives those that are there for good, as their parcel is whole now."""
        assert self.next is not None
        assert self._whole is not None
        self.next += rows
        if more or self.next == self._whole:
            return None
        first, self._whole = self._whole, self.next
        if self._ranges and self._ranges[-1][1] + 1 == first:
            self._ranges[-1] = (self._ranges[-1][0], self.next - 1)
        else:
            self._ranges.append((first, self.next - 1))
        return first, self.next - 1

    def fault(self, file: str, at: int, what: str, *, certain: bool) -> None:
        """No valid frame stands here. It is damage if that is certain, or if the next number does not fit."""
        cut = self._cut()
        self._open.append(_Open(file, at, f"{what}; {cut}" if cut else what, certain))

    def end_segment(self, file: str, at: int) -> None:
        cut = self._cut()
        if cut:
            self.ignore(file, at, cut)

    def finish(self) -> None:
        """Nothing follows: what could be torn is."""
        self._settle(None if self._whole is None else (self._whole, None), fits=True)

    def ignore(self, file: str, at: int, what: str) -> None:
        self.findings.append(Finding("ignored", file, at, what))

    def ranges(self) -> list[tuple[int, int]]:
        """Apart and in order, even where the numbers in the files are not."""
        merged: list[tuple[int, int]] = []
        for first, last in sorted(self._ranges):
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        return merged

    def _cut(self) -> str:
        """A parcel is whole or not there."""
        whole, self.next = self.next, self._whole
        if whole is None or self.next is None or whole == self.next:
            return ""
        return f"{span(self.next, whole - 1)} before it belong to a parcel whose end is not there"

    def _settle(self, lost: tuple[int, int | None] | None, *, fits: bool) -> None:
        for one in self._open:
            if one.certain or not fits:
                self._damage(one.file, one.at, one.what, lost)
            else:
                self.findings.append(Finding("torn", one.file, one.at, one.what))
        self._open.clear()

    def _damage(self, file: str, at: int, what: str, lost: tuple[int, int | None] | None) -> None:
        self.findings.append(Finding("damage", file, at, what, lost))


def missing(ranges: Sequence[tuple[int, int]], first: int, last: int) -> list[tuple[int, int]]:
    """What of `first` to `last` is in none of the ranges, which are apart and in order."""
    gaps = []
    for begin, end in ranges:
        if begin > last:
            break
        if begin > first:
            gaps.append((first, begin - 1))
        first = max(first, end + 1)
    return [*gaps, (first, last)] if first <= last else gaps
