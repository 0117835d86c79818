"""Trending topics of Meetup's RSVPs: event time, a watermark, sliding windows, the first five of each.

    python examples/trending_topics.py [--url URL] [--windows 5]

A window is shown once, when no RSVP can come for it any more: when one has come that is later than its end by
`LATENESS`. Until then RSVPs may come in any order; after that, a late one is left out. Without a URL there is
a simulator. It ends after a few windows.
"""

import argparse
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

import headwater as hw
from headwater.sim import RsvpSim
from headwater.sources import meetup_rsvp

LENGTH, STEP, LATENESS = "6 seconds", "3 seconds", "2 seconds"  # hours, with people


def topics(rsvps: DataFrame) -> DataFrame:
    """How many said yes, by window and topic of the group. An RSVP counts for each topic, in two windows."""
    coming = rsvps.where("response = 'yes'").select(
        F.timestamp_millis("mtime").alias("at"),  # when it was made, and not when it came here
        F.explode("group.group_topics.topic_name").alias("topic"),
    )
    windows = F.window("at", LENGTH, STEP)
    return coming.withWatermark("at", LATENESS).groupBy(windows, "topic").agg(F.count("*").alias("yes"))


def top(counted: DataFrame, most: int) -> DataFrame:
    """Those with the most RSVPs in each window; where two have as many, the first by the alphabet."""
    in_order = Window.partitionBy("window").orderBy(F.desc("yes"), "topic")
    ranked = counted.withColumn("rank", F.row_number().over(in_order)).where(F.col("rank") <= most)
    return ranked.orderBy("window", "rank")


class Shown:
    """For `foreachBatch`: prints the windows that are complete. With `append`, no row comes a second time."""

    def __init__(self) -> None:
        self.windows: set[Any] = set()

    def __call__(self, batch: DataFrame, number: int) -> None:
        for row in top(batch, most=5).collect():
            if row.window.start not in self.windows:
                print(f"\n{row.window.start:%H:%M:%S} to {row.window.end:%H:%M:%S}")
                self.windows.add(row.window.start)
            print(f"  {row.rank}. {row.topic:<24}{row.yes:>5}", flush=True)


def run(url: str, windows: int) -> None:
    builder = SparkSession.builder.appName("trending topics").config("spark.sql.shuffle.partitions", 2)
    spark = hw.session(builder.config("spark.ui.showConsoleProgress", "false"))
    rsvps = hw.stream(spark, meetup_rsvp(url=url, decode="json"))
    shown = Shown()
    query = topics(rsvps).writeStream.outputMode("append").foreachBatch(shown).start()
    while len(shown.windows) < windows and not query.awaitTermination(0.2):
        pass
    query.stop()
    spark.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", help="of the feed; without it, one of this process")
    parser.add_argument("--windows", type=int, default=5, help="how many to show (default: 5)")
    given = parser.parse_args()
    if given.url:
        run(given.url, given.windows)
    else:
        with RsvpSim(rate=100) as sim:
            run(sim.url, given.windows)
