"""A checkpoint folder: Spark's progress, and beside it the logs that headwater keeps there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headwater._log.numbering import Finding, missing
from headwater._log.offsets import Batch, Offset, batch, batches
from headwater._log.place import checkpoint_folder
from headwater._log.reading import Log, is_log, read_log
from headwater._log.texts import shortened
from headwater.errors import HeadwaterError

__all__ = ["Again", "Checkpoint", "Source", "read_checkpoint"]


@dataclass(frozen=True, slots=True)
class Again:
    """The batch that Spark runs again on its next start, with its rows of a source; None: it has none."""

    batch: int
    rows: tuple[int, int] | None
    missing: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Source:
    folder: str
    kind: Literal["log", "memory", "other"]
    name: str | None
    log: Log | None
    offset: Offset | None  # of Spark's last batch
    committed: Offset | None  # of the last batch that Spark has done
    again: Again | None
    findings: list[Finding]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    path: Path
    offset: int | None  # the last batch begun
    commit: int | None  # the last batch done
    again: int | None
    problem: str | None  # why the offsets are not understood
    sources: list[Source]

    @property
    def damaged(self) -> bool:
        return any(found.kind == "damage" for source in self.sources for found in source.findings)


def read_checkpoint(path: str) -> Checkpoint:
    """HeadwaterError where there is none, or where it cannot be read. A query may run meanwhile."""
    try:
        return _read(checkpoint_folder(path))
    except OSError as error:
        told = f"{error.filename or path} cannot be read: {error.strerror or error}"
        raise HeadwaterError(told, "look at the rights of the file, and at the disk") from error


def _read(folder: Path) -> Checkpoint:
    """Offsets are read first and commits last, so that no row of a running query seems to be missing.

    For rows are durable before Spark writes of them in `offsets`, and dropped after it has in `commits`.
    """
    begun = batches(folder / "offsets")
    last = begun[-1] if begun else None
    now = None if last is None else batch(folder / "offsets", last)
    before = None if not last else batch(folder / "offsets", last - 1)
    logs = {name: read_log(folder / "sources" / name) for name in _logs(folder / "sources")}
    done = [number for number in batches(folder / "commits") if last is None or number <= last]
    commit = done[-1] if done else None
    again = last if last is not None and last != commit else None
    problem = next((one.problem for one in (now, before) if one and one.problem), None)
    if last and before is None:
        problem = f"offsets/{last - 1} is missing, with which batch {last} begins"
    spark = _Spark(last, again, problem is None)
    sources = []
    for name in _names(folder / "sources", now, logs):
        offset, started = _of(now, name, logs.get(name)), _of(before, name, logs.get(name))
        sources.append(_source(name, logs.get(name), offset, started, spark))
    return Checkpoint(folder, last, commit, again, problem, sources)


@dataclass(frozen=True, slots=True)
class _Spark:
    last: int | None
    again: int | None
    clear: bool  # the offsets are understood


def _logs(sources: Path) -> list[str]:
    return [name for name in _folders(sources) if is_log(sources / name)]


def _folders(sources: Path) -> list[str]:
    if not sources.is_dir():
        return []
    return [path.name for path in sources.iterdir() if path.is_dir() and not path.name.startswith(".")]


def _names(sources: Path, now: Batch | None, logs: dict[str, Log]) -> list[str]:
    """Those with a folder, and those with an offset alone: a source without a log has no need of a folder."""
    runs = {run for log in logs.values() for run in log.runs}
    offsets = enumerate(now.offsets if now else ())
    numbers = {str(i) for i, one in offsets if not (isinstance(one, Offset) and one.run in runs)}
    return sorted({*_folders(sources), *numbers}, key=lambda name: (not name.isdecimal(), name.zfill(20)))


def _of(found: Batch | None, name: str, log: Log | None) -> Offset | None:
    """Spark numbers its sources. One that has a name instead is known by its run."""
    if found is None:
        return None
    if name.isascii() and name.isdigit():
        one = found.offsets[int(name)] if int(name) < len(found.offsets) else None
        return one if isinstance(one, Offset) else None
    ours = (one for one in found.offsets if isinstance(one, Offset))
    return next((one for one in ours if log is not None and one.run in log.runs), None)


def _source(
    name: str, log: Log | None, offset: Offset | None, started: Offset | None, spark: _Spark
) -> Source:
    folder = f"sources/{name}"
    findings = [] if log is None else list(log.findings)
    known = offset or started
    again: Again | None = None
    if known and (known.log or log is not None):
        findings += _strange(folder, spark, log, known)
    if spark.again is not None and spark.clear and offset and log is not None and offset.run in log.runs:
        first = started.seq + 1 if started else log.manifest.first if log.manifest else 0
        rows = (first, offset.seq) if first <= offset.seq else None
        again = Again(spark.again, rows, missing(log.ranges, *rows) if rows else [])
        what = f"batch {spark.again} is to be run again, and not all of it is there"
        findings += [Finding("damage", f"offsets/{spark.again}", 0, what, gap) for gap in again.missing]
    kind: Literal["log", "memory", "other"] = "other"
    if log is not None or known:
        kind = "log" if log is not None or (known and known.log) else "memory"
    committed = offset if spark.again is None else started
    called = (log and log.source) or (known and known.source) or None
    return Source(folder, kind, called, log, offset, committed, again, findings)


def _strange(folder: str, spark: _Spark, log: Log | None, offset: Offset) -> list[Finding]:
    """What is wrong between Spark's offset and the log; a batch to be run again is looked at elsewhere."""
    file, done = f"offsets/{spark.last}", spark.clear and spark.again is None
    if log is None:
        what = (
            f"Spark's offset says that the rows of {shortened(offset.source)} are in a log, {folder} has none"
        )
    elif not offset.log:
        what = "Spark's offset says that the rows were in memory, yet there is a log"
        return [Finding("ignored", file, 0, what)]
    elif offset.run not in log.runs:
        what = f"Spark's offset is of run {shortened(offset.run)}, the log in {folder} of another"
    elif done and log.oldest is not None and log.oldest > offset.seq + 1:
        what = f"Spark goes on after row {offset.seq}, the log in {folder} begins with row {log.oldest}"
        return [Finding("damage", file, 0, what, (offset.seq + 1, log.oldest - 1))]
    elif done and log.next is not None and log.next <= offset.seq:
        what = f"Spark has rows up to {offset.seq}, the log in {folder} ends before row {log.next}"
        return [Finding("damage", file, 0, what, (log.next, offset.seq))]
    else:
        return []
    return [Finding("damage", file, 0, what)]
