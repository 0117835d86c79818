"""RSVPs of Meetup as JSON files, one folder per day, with a checkpoint: started again, it goes on.

    headwater sim rsvp --rate 20 --port 8750
    python examples/rsvps_to_json.py FOLDER [--url http://127.0.0.1:8750/2/rsvps] [--seconds 20]

The first is the feed, in a shell of its own. Stop or kill the second and start it again: no RSVP is missing
in FOLDER/rsvps, and none is there twice. Without a URL, and with a new FOLDER, it shows that by itself: it
has a simulator, and stops its query and starts it again.
"""

import argparse

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import headwater as hw
from headwater.sim import RsvpSim
from headwater.sources import meetup_rsvp


def run(spark: SparkSession, url: str, folder: str, seconds: float) -> None:
    # At the very first start the last 1000 RSVPs; at each later one, those after the last that it has.
    rsvps = hw.stream(spark, meetup_rsvp(url=url, decode="json", since_count=1000))
    by_day = rsvps.withColumn("day", F.to_date(F.timestamp_millis("mtime")))

    writer = by_day.writeStream.format("json").partitionBy("day").option("path", f"{folder}/rsvps")
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
    query = writer.trigger(processingTime="2 seconds").start()  # so often a file, and not for each RSVP
    query.awaitTermination(seconds)  # raises what the query fails with
    query.stop()

    # Spark reads the list of files that its sink keeps: what a killed batch has left is not in it.
    written = spark.read.schema(by_day.schema).json(f"{folder}/rsvps")
    different = written.select("rsvp_id", "mtime").distinct()  # one that is changed comes again, at its time
    print(f"{written.count()} RSVPs in {folder}/rsvps, {different.count()} different ones", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="where files and checkpoint are, or will be")
    parser.add_argument("--url", help="of the feed; without it, one of this process")
    parser.add_argument("--seconds", type=float, default=20, help="how long it runs (default: 20)")
    given = parser.parse_args()
    builder = SparkSession.builder.appName("RSVPs to JSON").config("spark.sql.session.timeZone", "UTC")
    spark = hw.session(builder.config("spark.ui.showConsoleProgress", "false"))
    if given.url:
        run(spark, given.url, given.folder, given.seconds)
    else:
        with RsvpSim(rate=20) as sim:
            run(spark, sim.url, given.folder, given.seconds / 2)
            run(spark, sim.url, given.folder, given.seconds / 2)
    spark.stop()


if __name__ == "__main__":
    main()
