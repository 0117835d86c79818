"""What became of the rows: lost, repeated, reordered, invented, and batches that were not the same twice."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from chaos.sink import Written, read

SHOWN = 5
MOST_SHARDS = 1000  # as in feeds.py, which only a driver imports


@dataclass
class Verdict:
    """Ids of rows, but for `differing`, which are batches. All must be empty."""

    lost: list[int] = field(default_factory=list)
    repeated: list[int] = field(default_factory=list)
    reordered: list[int] = field(default_factory=list)
    invented: list[int] = field(default_factory=list)
    differing: list[int] = field(default_factory=list)
    rows: int = 0
    rerun: int = 0

    @property
    def is_exact(self) -> bool:
        return not any(self.found().values())

    def found(self) -> dict[str, list[int]]:
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, list)}

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {len(ids)}{_examples(ids)}" for name, ids in self.found().items())
        return f"rows {self.rows}, batches run again {self.rerun}: {counts}"


def _examples(ids: Sequence[int]) -> str:
    if not ids:
        return ""
    return f" ({', '.join(map(str, ids[:SHOWN]))}{', …' if len(ids) > SHOWN else ''})"


def resumable(written: Written, end: int, upstream: int | None = None) -> Verdict:
    """For a source that could go on after every row: exactly the ids from 0 up to `end`, in order.

    `upstream` is where the ids end that were ever given, if that is not `end`.
    """
    verdict, arrived = _common(written, range(end if upstream is None else upstream))
    verdict.lost = sorted({*verdict.lost, *(id for id in range(end) if id not in arrived)})
    return verdict


def partitioned(written: Written, ends: Mapping[int, int], most: int) -> Verdict:
    """For a source with partitions: of each, exactly the offsets from 0 up to its end, in order.

    The id of a row is its offset times `most`, plus its partition. Between partitions there is no order.
    """
    whole = Verdict(invented=[id for ids in written.batches.values() for id in ids if id % most not in ends])
    for partition, end in ends.items():
        verdict = resumable(_part(written, partition, most), end)
        for name, offsets in verdict.found().items():
            ids = offsets if name == "differing" else [offset * most + partition for offset in offsets]
            getattr(whole, name).extend(ids)
        whole.rows += verdict.rows
    whole.rerun = sum(len(attempts) > 1 for attempts in written.attempts.values())
    return whole


def _part(written: Written, partition: int, most: int) -> Written:
    def of(ids: list[int]) -> list[int]:
        return [id // most for id in ids if id % most == partition]

    attempts = {number: [of(ids) for ids in tries] for number, tries in written.attempts.items()}
    return Written({number: of(ids) for number, ids in written.batches.items()}, attempts)


def live(written: Written, runs: Iterable[Sequence[int]]) -> Verdict:
    """For a source whose upstream forgets. `runs` is what each start gave, in order.

    What was given and not durable when the process was killed may be lost, and that is the end of a run:
    before a row that arrived, none of the same run may be missing. Nor may a row that any attempt of a batch
    had.
    """
    given = [list(run) for run in runs]
    verdict, arrived = _common(written, {id for run in given for id in run})
    missing = set(verdict.lost)
    for run in given:
        last = max((n for n, id in enumerate(run) if id in arrived), default=0)
        missing.update(id for id in run[:last] if id not in arrived)
    verdict.lost = sorted(missing)
    return verdict


def _common(written: Written, known: Container[int]) -> tuple[Verdict, set[int]]:
    """All but the rows that never came, and those that did. Lost is what an attempt had and no batch has."""
    verdict = Verdict()
    seen: set[int] = set()
    highest = -1
    for number in sorted(written.batches):
        for id in written.batches[number]:
            verdict.rows += 1
            if id not in known:
                verdict.invented.append(id)
            elif id in seen:
                verdict.repeated.append(id)
            elif id < highest:
                verdict.reordered.append(id)
            seen.add(id)
            highest = max(highest, id)
    for number, attempts in written.attempts.items():
        verdict.rerun += len(attempts) > 1
        if any(attempt != written.batches.get(number, attempts[0]) for attempt in attempts):
            verdict.differing.append(number)
        verdict.lost += [id for attempt in attempts for id in attempt if id not in seen]
    return verdict, seen


def judge(folder: Path) -> dict[str, Verdict]:
    """Of all that a chaos run has left behind, once its last, clean run is over."""
    end = json.loads((folder / "starts.jsonl").read_text().splitlines()[-1])["end"]
    assert end is not None, "the last run was not a clean one"
    upstream = int((folder / "upstream.txt").read_text())
    runs: dict[str, list[int]] = {}
    for line in (folder / "given.txt").read_text().splitlines():
        start, id = line.split()
        runs.setdefault(start, []).append(int(id))
    return {
        "numbers": resumable(read(folder / "numbers" / "sink"), end, upstream),
        "ticks": live(read(folder / "ticks" / "sink"), runs.values()),
        "shards": partitioned(read(folder / "shards" / "sink"), _ends(folder), MOST_SHARDS),
    }


def _ends(folder: Path) -> dict[int, int]:
    return {
        int(file.stem.removeprefix("shard-")): int(file.read_text()) for file in folder.glob("shard-*.txt")
    }
