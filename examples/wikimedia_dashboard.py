"""A dashboard of Wikimedia's recent changes: edits per wiki in windows of time, by people and by bots, live.

    python examples/wikimedia_dashboard.py [--url URL] [--edits 1000]

Without a URL there is a simulator; https://stream.wikimedia.org/v2/stream/recentchange is the real feed. On a
terminal the table is drawn anew after each batch, elsewhere one follows the other. It ends after some edits.
"""

import argparse
import sys
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import headwater as hw
from headwater.sim import WikimediaSim
from headwater.sources import sse

SCHEMA = "wiki STRING, type STRING, bot BOOLEAN, meta STRUCT<domain: STRING, dt: TIMESTAMP>"
"""What is wanted of a change. All else that it says is passed over while it is decoded."""

WINDOW, LATENESS = "5 seconds", "10 seconds"
WIKIS_SHOWN, WINDOWS_SHOWN = 10, 4


def edits(changes: DataFrame) -> DataFrame:
    """How many, by window and wiki. Canaries only show that the stream is alive, and are nobody's edits."""
    real = changes.where("meta.domain != 'canary' AND type IN ('edit', 'new')").withColumn(
        "at", F.col("meta.dt")
    )
    by = real.withWatermark("at", LATENESS).groupBy(F.window("at", WINDOW), "wiki")
    return by.agg(F.count_if(~F.col("bot")).alias("people"), F.count_if("bot").alias("bots"))


class Table:
    """For `foreachBatch`: a batch has the counts that have changed, as they are now."""

    def __init__(self) -> None:
        self.edits = 0
        self._windows: dict[datetime, dict[str, tuple[int, int]]] = {}
        self._drawn = 0

    def __call__(self, batch: DataFrame, number: int) -> None:
        for row in batch.collect():
            wikis = self._windows.setdefault(row.window.start, {})
            self.edits += row.people + row.bots - sum(wikis.get(row.wiki, (0, 0)))
            wikis[row.wiki] = row.people, row.bots
        self._windows = dict(sorted(self._windows.items())[-WINDOWS_SHOWN:])
        if sys.stdout.isatty() and self._drawn:
            print(f"\x1b[{self._drawn}A\x1b[J", end="")  # over the last one
        lines = [f"edits by people + bots, after batch {number}", *self._lines(), ""]
        print("\n".join(lines), flush=True)
        self._drawn = len(lines)

    def _lines(self) -> list[str]:
        totals: dict[str, int] = {}
        for wikis in self._windows.values():
            for wiki, counts in wikis.items():
                totals[wiki] = totals.get(wiki, 0) + sum(counts)
        rows = [f"{'wiki':<16}" + "".join(f"{start:%H:%M:%S}".rjust(14) for start in self._windows)]
        for wiki in sorted(totals, key=lambda wiki: (-totals[wiki], wiki))[:WIKIS_SHOWN]:
            cells = [wikis.get(wiki, (0, 0)) for wikis in self._windows.values()]
            rows.append(f"{wiki:<16}" + "".join(f"{people} + {bots}".rjust(14) for people, bots in cells))
        return rows


def run(url: str, most: int) -> None:
    builder = SparkSession.builder.appName("Wikimedia").config("spark.sql.shuffle.partitions", 2)
    spark = hw.session(builder.config("spark.ui.showConsoleProgress", "false"))
    spark.sparkContext.setLogLevel("ERROR")  # warnings would stand in the middle of the table
    changes = hw.stream(spark, sse(url, decode="json", schema=SCHEMA), on_bad_row="drop")
    table = Table()
    writer = edits(changes).writeStream.outputMode("update").foreachBatch(table)
    query = writer.trigger(processingTime="1 second").start()
    while table.edits < most and not query.awaitTermination(0.2):
        pass
    query.stop()
    spark.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", help="of the feed; without it, one of this process")
    parser.add_argument("--edits", type=int, default=1000, help="after how many to end (default: 1000)")
    given = parser.parse_args()
    if given.url:
        run(given.url, given.edits)
    else:
        with WikimediaSim(rate=100) as sim:
            run(sim.url, given.edits)
