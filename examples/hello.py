"""The smallest source. Run this file, or look at its rows without Spark:

headwater peek examples/hello.py:squares -n 3 -o start=7
"""

import itertools
import time
from collections.abc import Iterator

import headwater as hw


@hw.source("n LONG, square LONG")
def squares(start: int = 0) -> Iterator[tuple[int, int]]:
    """Numbers and their squares, ten per second."""
    for n in itertools.count(start):
        yield n, n * n
        time.sleep(0.1)


if __name__ == "__main__":
    spark = hw.session()
    stream = spark.readStream.format("squares").option("start", 7).load()
    query = stream.writeStream.format("console").start()
    query.awaitTermination(10)
    query.stop()
