"""What is known of a checkpoint, in lines."""

from __future__ import annotations

from collections.abc import Iterator

from headwater._log.checkpoint import Checkpoint, Source
from headwater._log.numbering import Finding
from headwater._log.reading import Log
from headwater._log.texts import as_json, counted, schema_text, shortened, span, table

__all__ = ["show_lines", "verify_lines"]

_KINDS = {"damage": "damage", "torn": "torn tail", "ignored": "ignored"}


def show_lines(found: Checkpoint) -> Iterator[str]:
    yield _fact("checkpoint", shortened(str(found.path), 1000))
    yield _fact("Spark", _progress(found))
    if found.problem:
        yield _fact("", f"{found.problem}; so which rows Spark has is not known")
    for source in found.sources:
        yield ""
        yield from _source(source)
    if not any(source.kind == "log" for source in found.sources):
        yield ""
        yield "There is no log of headwater in this checkpoint."


def verify_lines(found: Checkpoint) -> Iterator[str]:
    """One line for each log, and one for each thing found in it."""
    logs = [source for source in found.sources if source.kind == "log"]
    if not logs:
        yield f"ok   {shortened(str(found.path), 1000)} has no log of headwater, so nothing to verify"
    for source in logs:
        damage = [one for one in source.findings if one.kind == "damage"]
        told = counted(len(damage), "damaged place") if damage else "sound"
        yield f"{'FAIL' if damage else 'ok  '} {_title(source)}: {told}; {_size(source.log)}"
        for one in source.findings:
            yield f"     {_KINDS[one.kind]}: {_finding(one)}"
    if found.problem and logs:
        yield f"     {found.problem}; so the logs were not compared with it"


def _progress(found: Checkpoint) -> str:
    if found.offset is None:
        return "no batch was begun"
    done = "none is done" if found.commit is None else f"the last done is {found.commit}"
    again = "" if found.again is None else f"; on the next start batch {found.again} is run again"
    return f"the last batch begun is {found.offset}, {done}{again}"


def _source(source: Source) -> Iterator[str]:
    yield _fact("source", _title(source))
    if source.kind == "other":
        yield _fact("", "not headwater's, or without an offset yet")
    elif source.kind == "memory":
        yield _fact("", "its rows are in the memory of a driver, only its offset is in the checkpoint")
    if source.log:
        yield from _log(source.log)
    if source.offset:
        done = "none" if source.committed is None else f"row {source.committed.seq}"
        run = "" if source.log else f", of run {shortened(source.offset.run)}"
        yield _fact("Spark", f"begun up to row {source.offset.seq}, done up to {done}{run}")
    if source.again:
        yield _fact("again", _again(source))
    for one in source.findings:
        yield _fact(_KINDS[one.kind], _finding(one))
    if source.log and source.log.segments:
        yield ""
        yield from _segments(source.log)


def _log(log: Log) -> Iterator[str]:
    if log.manifest:
        known = log.manifest
        yield _fact("run", f"{shortened(known.run)}, epoch {known.epoch}, {counted(known.shards, 'shard')}")
        yield _fact("schema", shortened(schema_text(known.schema), 1000))
    where = ", ".join(span(*one) for one in log.ranges[:3]) + (", …" if len(log.ranges) > 3 else "")
    parts = f"{log.rows - log.waiting} committed, {log.waiting} waiting"
    yield _fact("rows", f"{log.rows} retained ({where}): {parts}" if log.rows else "none retained")
    yield _fact("committed", "nothing" if log.committed < 0 else f"up to row {log.committed}")
    for shard, cursor in log.cursors.items():
        yield _fact("cursor", f"of shard {shortened(shard)}: {shortened(as_json(cursor))}")
    if not log.cursors:
        yield _fact("cursor", "none")


def _again(source: Source) -> str:
    again = source.again
    if again is None or again.rows is None:
        return f"batch {again.batch}: no rows of this source" if again else ""
    gaps = ", ".join(span(*gap) for gap in again.missing)
    return f"batch {again.batch}: {span(*again.rows)}, " + (f"without {gaps}" if gaps else "all in the log")


def _segments(log: Log) -> list[str]:
    return table(
        ("segment", "bytes", "frames", "rows", "first", "last"),
        [
            (
                one.file,
                *(str(n) for n in (one.size, one.frames, one.rows)),
                _or_dash(one.first),
                _or_dash(one.last),
            )
            for one in log.segments
        ],
    )


def _size(log: Log | None) -> str:
    if log is None:
        return "there is no log"
    size, frames = sum(one.size for one in log.segments), sum(one.frames for one in log.segments)
    of = f"{counted(len(log.segments), 'segment')}, {counted(frames, 'frame')}, {counted(log.rows, 'row')}"
    return f"{of}, {counted(size, 'byte')}"


def _finding(one: Finding) -> str:
    lost = ""
    if one.kind == "damage" and one.lost is None:
        lost = "; no row is known to be lost"
    elif one.lost is not None:
        verb = "is" if one.lost[0] == one.lost[1] else "may be" if one.lost[1] is None else "are"
        lost = f"; {span(*one.lost)} {verb} lost"
    return f"{one.file} at byte {one.at}: {shortened(one.what, 400)}{lost}"


def _title(source: Source) -> str:
    name = shortened(source.name) if source.name else "unknown"
    return f"{name} ({shortened(source.folder)})"


def _or_dash(number: int | None) -> str:
    return "-" if number is None else str(number)


def _fact(what: str, text: str) -> str:
    return f"{what:<10}  {text}"
