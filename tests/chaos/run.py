"""kill -9, again and again, on one checkpoint: `make chaos ARGS="--rounds 100"`.

Each round starts a driver with three queries and kills it, at one of the moments in `plan.py` or at any. A
clean run reads the rest, and the oracle counts. Threads, open files and the size of the checkpoints must not
grow from round to round. What was found is kept if it is not what it should be.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

from chaos.oracle import judge
from chaos.plan import CYCLE, NAMED, plans
from chaos.rounds import Harness, Outcome

HEAD = (
    "round  moment       query    killed  stood at         s  jvm: threads files  python: threads files"
    "      KiB  files  segments"
)

# What is measured, and how much more the last rounds may have than the first: a factor, and an amount.
Measures = dict[str, tuple[Callable[[Outcome], float | None], float, float]]
HELD: Measures = {
    "threads of the JVM": (lambda o: o.held.jvm_threads if o.held else None, 1.15, 6),
    "open files of the JVM": (lambda o: o.held.jvm_files if o.held else None, 1.1, 10),
    "threads of Python": (lambda o: o.held.python_threads if o.held else None, 1.1, 2),
    "open files of Python": (lambda o: o.held.python_files if o.held else None, 1.1, 4),
}
FLAT: Measures = HELD | {
    "bytes of the checkpoints": (lambda o: o.disk.bytes, 1.5, 4 << 20),
    "files of the checkpoints": (lambda o: o.disk.files, 1.25, 10),
    "segments of the logs": (lambda o: o.disk.segments, 1.25, 3),
}
ENOUGH_ROUNDS = 2 * len(CYCLE)
ENOUGH_FOR_DISK = 6 * len(CYCLE)  # a round more or less with wide rows shows there


def growth(outcomes: list[Outcome], measures: Measures = FLAT) -> list[str]:
    """What did not stay flat: what most of the moments found more of in the last laps than in the first.

    Like is compared with like: a kill among wide rows leaves much more on disk than others do.
    """
    laps = len(outcomes) // len(CYCLE)
    some = max(1, laps // 3) * len(CYCLE)
    first, last = outcomes[:some], outcomes[: laps * len(CYCLE)][-some:]
    found = []
    for what, (measure, factor, more) in measures.items():
        pairs = list(zip(_by_place(first, measure), _by_place(last, measure), strict=True))
        known = [(before, after) for before, after in pairs if before is not None and after is not None]
        grown = [(before, after) for before, after in known if after > factor * before + more]
        if len(grown) * 2 > len(known):
            told = ", ".join(f"{before:.0f} to {after:.0f}" for before, after in grown)
            found.append(f"{what} grew from the first laps to the last: {told}")
    return found


def _by_place(outcomes: list[Outcome], measure: Callable[[Outcome], float | None]) -> list[float | None]:
    """The median for each place in the cycle; none where it could not be measured."""
    places = [[measure(outcome) for outcome in outcomes[place :: len(CYCLE)]] for place in range(len(CYCLE))]
    known = [[value for value in values if value is not None] for values in places]
    return [median(values) if values else None for values in known]


def missed(outcomes: list[Outcome]) -> list[str]:
    """Moments that no kill came at, though it was tried: nothing is known of them."""
    tried = {outcome.plan.point for outcome in outcomes} & set(NAMED)
    return sorted(tried - {outcome.plan.point for outcome in outcomes if outcome.is_hit})


def line(outcome: Outcome) -> str:
    plan, held, disk = outcome.plan, outcome.held, outcome.disk
    jvm = f"{held.jvm_threads:12} {held.jvm_files:5}" if held else f"{'-':>12} {'-':>5}"
    python = f"{held.python_threads:15} {held.python_files:5}" if held else f"{'-':>15} {'-':>5}"
    stood_at = outcome.stood_at if outcome.is_hit else f"{outcome.stood_at} !"
    return (
        f"{plan.number:5}  {plan.point:11}  {plan.query:7}  {plan.whom:6}  {stood_at:12}"
        f" {outcome.seconds:5.1f}  {jvm}  {python}  {disk.bytes >> 10:7}  {disk.files:5}  {disk.segments:8}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make chaos ARGS=…", description="kill -9 and restart, on one checkpoint"
    )
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument(
        "--durability", choices=["log", "memory"], default="log", help="memory: see it lose rows"
    )
    parser.add_argument("--api", choices=["v1", "v2"], default="", help="instead of both, taking turns")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    print(f"--rounds {asked.rounds} --seed {asked.seed}, in {folder}\n{HEAD}", flush=True)
    try:
        problems = _rounds(asked, folder)
    except AssertionError as error:
        problems = [str(error)]
    for problem in problems:
        print(f"NOT SO: {problem}")
    if problems:
        print(
            f"all that was found is in {folder}; the same again: --rounds {asked.rounds} --seed {asked.seed}"
        )
    else:
        shutil.rmtree(folder)
    return len(problems) > 0


def _rounds(asked: argparse.Namespace, folder: Path) -> list[str]:
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="chaos-tmp-") as temporary:
        harness = Harness(folder, Path(temporary), asked.durability, asked.api)
        for plan in plans(asked.rounds, asked.seed, has_log=asked.durability == "log"):
            outcomes.append(harness.play(plan))
            print(line(outcomes[-1]), flush=True)
        harness.drain()
    problems = [f"no kill came at the moment '{point}': {NAMED[point]}" for point in missed(outcomes)]
    if len(outcomes) >= ENOUGH_ROUNDS:
        problems += growth(outcomes, FLAT if len(outcomes) >= ENOUGH_FOR_DISK else HELD)
    for query, verdict in judge(folder).items():
        print(f"{query}: {verdict}")
        problems += [] if verdict.is_exact else [f"the rows of {query} are not what was given"]
    return problems


if __name__ == "__main__":
    sys.exit(main())
