"""A feed into Kafka, and from Kafka into a query. Spark's own connector writes and reads.

    spark-submit --jars "$(headwater jar)" --packages org.apache.spark:spark-sql-kafka-0-10_2.13:VERSION \
        examples/kafka_both_ways.py BROKER:PORT TOPIC

VERSION is that of Spark. A simulator sends RSVPs, some of which change one that was sent before. In the end
those that came back from Kafka are counted. The exit status is 1 if one is missing. Kafka may have some
twice, if the first query is restarted in between: Spark's sink writes each row at least once.
"""

import json
import sys
import tempfile
from typing import Any

import headwater as hw
from headwater.sim import RsvpSim

COUNT = 500
SCHEMA = "rsvp_id%20LONG,%20mtime%20LONG,%20response%20STRING"


def main(broker: str, topic: str) -> int:
    spark = hw.session()
    checkpoints = tempfile.mkdtemp()
    with RsvpSim(seed=1, rate=0, count=COUNT) as sim:
        feed = hw.stream(spark, f"ndjson+{sim.url}?decode=json&schema={SCHEMA}")
        records = feed.selectExpr("concat(rsvp_id, '/', mtime) AS key", "to_json(struct(*)) AS value")
        to_kafka = records.writeStream.format("kafka").option("kafka.bootstrap.servers", broker)
        to_kafka = to_kafka.option("topic", topic).option("checkpointLocation", f"{checkpoints}/to")
        query = to_kafka.start()
        while last_row(query) < COUNT - 1:
            query.awaitTermination(1)
        query.stop()

    seen: set[str] = set()

    def collect(batch: Any, number: int) -> None:
        seen.update(row.key for row in batch.selectExpr("CAST(key AS STRING) AS key").collect())

    rows = hw.stream(spark, f"kafka://{broker}/{topic}?startingOffsets=earliest&maxOffsetsPerTrigger=100")
    from_kafka = rows.writeStream.foreachBatch(collect).option("checkpointLocation", f"{checkpoints}/from")
    from_kafka.trigger(availableNow=True).start().awaitTermination()
    print(f"{COUNT} RSVPs went to Kafka, and {len(seen)} came back")
    return int(len(seen) != COUNT)


def last_row(query: Any) -> int:
    """The number, from 0, of the last row that is in Kafka: `numInputRows` may count a row twice."""
    progress = query.lastProgress
    offset = json.loads(progress.json)["sources"][0]["endOffset"] if progress else None
    return offset["seq"] if offset else -1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
