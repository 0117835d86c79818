"""Which kill comes in which round: all from one seed, so that a run can be had again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from chaos.sink import AFTER, BEFORE

OFFSETS, COMMITS, DELETING = "offsets", "commits", "deleting"
OPENING, SEGMENT, FRAME, RANDOM = "opening", "segment", "frame", "random"

NAMED = {
    OFFSETS: "offsets/N is written, getBatch has not been called",
    BEFORE: "the rows have been read, the sink has not taken them",
    AFTER: "the sink has the batch, commits/N is not written",
    COMMITS: "commits/N is written",
    DELETING: "a commit deletes segments, and has deleted the first",
}
"""The moments of a batch."""

MORE = {
    OPENING: "the manifest of a new epoch is being written",
    SEGMENT: "a segment has just been created, its header may not be in it",
    FRAME: "frames are being written",
}
"""The moments of the log; `random` is any moment."""

QUERIES = ["numbers", "shards", "ticks"]
CYCLE = [RANDOM, *NAMED, RANDOM, *MORE]
SKIPS = {FRAME: 40, OPENING: 1, SEGMENT: 1, DELETING: 1}
WIDE, NARROW = 256 << 10, 400


@dataclass(frozen=True)
class Plan:
    number: int
    point: str
    query: str
    skip: int
    """So often the moment is let pass."""

    pace: str
    width: int
    whom: str
    """group | python | jvm: who is killed; the others have to end by themselves."""

    delay: float
    """Seconds after all queries run, or, if negative, after the start of the process."""

    @property
    def kills_early(self) -> bool:
        return self.point in (OPENING, SEGMENT) or self.delay < 0


def plan(number: int, point: str, query: str, dice: random.Random) -> Plan:
    is_random = point == RANDOM
    early = is_random and number > 0 and dice.random() < 0.3
    whom = dice.choice(["group", "group", "python", "jvm"]) if is_random and not early else "group"
    return Plan(
        number,
        point,
        query,
        skip=dice.randrange(SKIPS.get(point, 3)),
        pace="fast" if point == DELETING else dice.choice(["paced", "fast"]),
        width=WIDE if point == DELETING else NARROW,
        whom=whom,
        delay=-dice.uniform(2, 7) if early else dice.uniform(0, 3),
    )


def plans(rounds: int, seed: int, has_log: bool = True) -> Iterator[Plan]:
    """Each moment in turn, of one query and then of the next; wide rows are those of `numbers`."""
    dice = random.Random(seed)
    cycle = [point for point in CYCLE if has_log or point not in (DELETING, *MORE)]
    for number in range(rounds):
        lap, place = divmod(number, len(cycle))
        point = cycle[place]
        yield plan(number, point, _query(point, lap), dice)


def _query(point: str, lap: int) -> str:
    """`shards` has no log."""
    among = ["numbers"] if point == DELETING else ["numbers", "ticks"] if point in MORE else QUERIES
    return among[lap % len(among)]
