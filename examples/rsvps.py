"""RSVPs of Meetup, from a simulator of its feed, as they come. Run this file, or give it the URL of a feed:

headwater sim rsvp --rate 20 --fault cut@50
python examples/rsvps.py URL
"""

import sys

from pyspark.sql import functions as F  # noqa: N812

import headwater as hw
from headwater.sim import RsvpSim
from headwater.sources import meetup_rsvp


def run(url: str, seconds: float = 20) -> None:
    spark = hw.session()
    rsvps = hw.stream(spark, meetup_rsvp(url=url, decode="json"))
    shown = rsvps.select("response", "guests", "group.group_city", F.col("event.event_name").alias("event"))
    query = shown.writeStream.format("console").option("truncate", False).start()
    query.awaitTermination(seconds)
    query.stop()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(sys.argv[1])
    else:
        with RsvpSim(rate=5) as sim:
            run(sim.url)
