"""`make demo`: RSVPs are counted in a live table, the query is killed halfway, and none is lost or repeated.

Three processes: this one has the simulator of Meetup's feed, and draws the tables. The query is a child, with
Spark's JVM below it. Halfway these two are killed with SIGKILL, and another query goes on with their
checkpoint; the simulator goes on all the time. At the end the RSVPs in the table are compared with those
that it has made, one by one, whether it was asked for them or not: the exit status is 1 if any is missing,
there twice, or made up. Beside it `random_alpha` makes words.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any

from headwater.sim import Cut, CutMidRecord, RsvpSim

RATE = 40
ROWS_SHOWN = 10
WINDOWS_SHOWN = 4
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM that lives for seconds: no time is spent on making it fast."""

PATIENCE = 120.0
"""Seconds to wait for something new, before that is taken for a failure."""

Key = tuple[int, int]
"""What makes an RSVP another one: its id, and when it was last changed."""

Query = subprocess.Popen[bytes]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--seconds", type=float, default=18, help="how long to show tables, without starts (default: 18)"
    )
    parser.add_argument("--query", nargs=2, metavar=("FOLDER", "URL"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.query:
        run_queries(Path(given.query[0]), given.query[1])
        return 1  # they do not end by themselves
    faults = [CutMidRecord(RATE * 4), Cut(RATE * 20)]
    with (
        tempfile.TemporaryDirectory(prefix="headwater-demo-") as folder,
        RsvpSim(seed=1, rate=RATE, faults=faults) as sim,
    ):
        return Demo(Path(folder), sim).run(given.seconds / 2)


# The child


def run_queries(folder: Path, url: str) -> None:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F  # noqa: N812

    import headwater as hw
    from headwater.sources import meetup_rsvp, random_alpha

    builder = SparkSession.builder.master("local[2]").appName("headwater demo")
    builder = builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2")
    spark = hw.session(builder.config("spark.ui.showConsoleProgress", "false"))

    feed = hw.stream(spark, meetup_rsvp(url=url, since_count=1_000_000))
    rsvps = feed.select(F.from_json("rsvp", hw.RSVP_SCHEMA).alias("rsvp")).select("rsvp.*")
    window = F.window(F.timestamp_millis("mtime"), "10 seconds").start.alias("window")
    counted = rsvps.groupBy(window, F.col("group.group_country").alias("country")).agg(
        F.count("*").alias("rsvps"), F.collect_list(F.array("rsvp_id", "mtime")).alias("keys")
    )
    table = counted.writeStream.outputMode("complete").foreachBatch(Written(folder / "rsvps.json"))
    table.option("checkpointLocation", str(folder / "checkpoint")).trigger(processingTime="1 second").start()

    words = hw.stream(spark, random_alpha(len=5))
    letters = words.groupBy(F.upper(words.value.substr(1, 1)).alias("first")).agg(
        F.count("*").alias("words"), F.max_by("value", "timestamp").alias("like")
    )
    table = letters.writeStream.outputMode("complete").foreachBatch(Written(folder / "words.json"))
    table.trigger(processingTime="1 second").start()
    spark.streams.awaitAnyTermination()


class Written:
    """For `foreachBatch`: puts the table into a file, whole. A batch that is run again writes the same."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __call__(self, frame: Any, batch: int) -> None:
        rows = [row.asDict() for row in frame.collect()]
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps({"by": os.getpid(), "batch": batch, "rows": rows}, default=str))
        part.replace(self._file)


# The parent


class Demo:
    def __init__(self, folder: Path, sim: RsvpSim) -> None:
        self._folder = folder
        self._sim = sim
        self._screen = Screen()

    def run(self, seconds: float) -> int:
        self._screen.say(f"RSVPs come from {self._sim.url}; Spark starts …")
        with self._query() as first:
            self._show_for(first, seconds)
            os.killpg(first.pid, signal.SIGKILL)
            first.wait()
        before, asked, made = self._rows_by(first), len(self._sim.requests), self._sim.timeline.made
        self._screen.say(
            f"SIGKILL: Python and its JVM are gone, with {before:,} RSVPs in the table. The feed goes on.",
            "Another query starts, on the same checkpoint …",
        )
        with self._query() as second:
            self._show_until(second, lambda: len(self._sim.requests) > asked)
            missed = self._sim.timeline.made - made
            self._show_for(second, seconds)
            total = self._sim.finish()
            self._show_until(second, lambda: self._rows_by(second) >= total)
        return self._summary(before, missed, total)

    @contextmanager
    def _query(self) -> Iterator[Query]:
        """In a process group of its own, so that all of it can be killed at once."""
        command = [sys.executable, __file__, "--query", str(self._folder), self._sim.url]
        env = {"SPARK_SUBMIT_OPTS": QUICK_START, **os.environ}
        with (self._folder / "query.log").open("ab") as log:
            query = subprocess.Popen(command, stdout=log, stderr=log, env=env, start_new_session=True)
        try:
            yield query
        finally:
            with suppress(ProcessLookupError):
                os.killpg(query.pid, signal.SIGKILL)
            query.wait()

    def _show_for(self, query: Query, seconds: float) -> None:
        """From its first table on."""
        self._show_until(query, lambda: self._rows_by(query) > 0)
        end = time.monotonic() + seconds
        self._show_until(query, lambda: time.monotonic() > end)

    def _show_until(self, query: Query, condition: Callable[[], bool]) -> None:
        """Draws what the query writes. If nothing new comes for too long, that is the end of it too."""
        seen, deadline = -1, time.monotonic() + PATIENCE
        while not condition() and time.monotonic() < deadline:
            if query.poll() is not None:
                sys.exit(f"the query ended:\n{(self._folder / 'query.log').read_text()[-4000:]}")
            rows = self._rows_by(query)
            if rows != seen:
                seen, deadline = rows, time.monotonic() + PATIENCE
                self._screen.draw(tables(self._read("rsvps"), self._read("words")))
            time.sleep(0.2)

    def _rows_by(self, query: Query) -> int:
        """How many RSVPs are in the table that this query has written; 0 if it has not yet."""
        table = self._read("rsvps")
        return sum(row["rsvps"] for row in table["rows"]) if table["by"] == query.pid else 0

    def _read(self, name: str) -> dict[str, Any]:
        file = self._folder / f"{name}.json"
        found: dict[str, Any] = {"by": 0, "batch": -1, "rows": []}
        return json.loads(file.read_text()) if file.exists() else found

    def _summary(self, before: int, missed: int, total: int) -> int:
        table, sent = self._read("rsvps"), self._sim.sent
        found = [(key[0], key[1]) for row in table["rows"] for key in row["keys"]]
        records = [self._sim.record(n) for n in range(total)]
        verdict = judge([(record["rsvp_id"], record["mtime"]) for record in records], found)
        self._screen.draw(tables(table, self._read("words")), at_once=True)
        again, connections = len(sent) - len(set(sent)), len(self._sim.requests)
        self._screen.say(
            f"feed    {len(records):,} RSVPs over {connections} connections, {again:,} of them sent again",
            f"kill    {before:,} were in the table before it, {missed:,} were made while no query ran",
            f"table   {len(found):,} RSVPs after {table['batch'] + 1} batches",
            f"result  {', '.join(f'{what} {len(keys)}' for what, keys in verdict.items())}",
        )
        return int(any(verdict.values()) or not found)


def judge(made: Sequence[Key], found: Sequence[Key]) -> dict[str, list[Key]]:
    """What is wrong with what was found; nothing is if all lists are empty."""
    times = Counter(found)
    return {
        "lost": [key for key in made if key not in times],
        "repeated": [key for key in times if times[key] > 1],
        "invented": sorted(times.keys() - set(made)),
    }


class Screen:
    """On a terminal each table is drawn over the one before; elsewhere one is printed every few seconds."""

    def __init__(self) -> None:
        self._drawn = 0
        self._next = 0.0

    def say(self, *lines: str) -> None:
        """Lines that stay, below the last table."""
        self._drawn = 0
        print("\n".join([*lines, ""]), flush=True)

    def draw(self, lines: list[str], at_once: bool = False) -> None:
        if not sys.stdout.isatty():
            if lines and (at_once or time.monotonic() >= self._next):
                self._next = time.monotonic() + 5
                print("\n".join([*lines, ""]), flush=True)
            return
        width, height = shutil.get_terminal_size()
        shown = [
            line[:width].rstrip() for line in lines[: height - 2]
        ]  # a line that wraps would count as two
        over_the_last = f"\x1b[{self._drawn}A\x1b[J" if self._drawn else ""
        self._drawn = len(shown) + 1 if shown else 0
        print(
            over_the_last + "".join(f"{line}\n" for line in [*shown, ""][: self._drawn]), end="", flush=True
        )


def tables(rsvps: dict[str, Any], words: dict[str, Any]) -> list[str]:
    """RSVPs by country and window on the left, words by their first letter on the right."""
    if not rsvps["rows"]:
        return []
    left = [f"RSVPs per country and 10 seconds, batch {rsvps['batch']}", *by_country(rsvps["rows"])]
    right = [f"random_alpha, batch {words['batch']}", *by_letter(words["rows"])]
    return [f"{one:<56}{other}" for one, other in zip_longest(left, right, fillvalue="")]


def by_country(rows: list[dict[str, Any]]) -> list[str]:
    windows = sorted({row["window"] for row in rows})[-WINDOWS_SHOWN:]
    cells = {(row["country"], row["window"]): row["rsvps"] for row in rows}
    totals: Counter[str] = Counter()
    for row in rows:
        totals[row["country"]] += row["rsvps"]
    lines = ["country" + "".join(f"{window[11:19]:>9}" for window in windows) + f"{'in all':>9}"]
    for country, total in sorted(totals.items(), key=lambda item: (-item[1], item[0]))[:ROWS_SHOWN]:
        shown = "".join(f"{cells.get((country, window), 0):>9,}" for window in windows)
        lines.append(f"{country:<7}{shown}{total:>9,}")
    return lines


def by_letter(rows: list[dict[str, Any]]) -> list[str]:
    most = sorted(rows, key=lambda row: (-row["words"], row["first"]))[:ROWS_SHOWN]
    return ["first   words   like", *(f"{row['first']:<5}{row['words']:>8,}   {row['like']}" for row in most)]


if __name__ == "__main__":
    sys.exit(main())
