"""Reads random words and shows them in the console, or writes them as JSON to a folder.

    spark-submit --jars $(headwater jar) random_alpha_app.py 5 1000 60 [folder]

reads words of 5 letters, until there are 1000 rows or 60 seconds are over. Headwater is not imported: with
the jar there, Spark knows the format `random_alpha`. When the query fails, so does the application.
"""

import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)


class RowCounter(StreamingQueryListener):
    """Adds up progress reports: one comes after each batch, and now and then one while idle, of 0 rows."""

    rows = 0
    batches = 0

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        if event.progress.numInputRows > 0:
            self.batches += 1
            self.rows += event.progress.numInputRows

    def onQueryStarted(self, event: QueryStartedEvent) -> None: ...  # noqa: N802
    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None: ...  # noqa: N802


def run(length: int, rows: int, seconds: float, folder: str | None) -> None:
    spark = SparkSession.builder.appName("random_alpha").getOrCreate()
    counter = RowCounter()
    spark.streams.addListener(counter)

    words = spark.readStream.format("random_alpha").option("len", length).load()

    if folder is None:
        writer = words.writeStream.format("console").option("truncate", False)
    else:
        writer = words.writeStream.format("json").option("path", f"{folder}/rows")
        writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
    query = writer.start()

    deadline = time.monotonic() + seconds
    # awaitTermination is true once the query has ended, and raises if it failed.
    while counter.rows < rows and time.monotonic() < deadline and not query.awaitTermination(0.1):
        pass
    query.stop()
    failure = query.exception()
    if failure is not None:
        raise failure
    print(f"{counter.rows} rows in {counter.batches} batches")
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        sys.exit("usage: random_alpha_app.py LEN ROWS SECONDS [FOLDER]")
    length, rows, seconds, *folder = sys.argv[1:]
    run(int(length), int(rows), float(seconds), folder[0] if folder else None)
