"""Sources for Spark Structured Streaming, written in Python, with correct offsets.

    import headwater as hw

    @hw.source("n LONG, square LONG")
    def squares():
        for n in itertools.count():
            yield n, n * n

    spark = hw.session()
    spark.readStream.format("squares").load()

Importing this package imports neither pyspark nor py4j: they come in with the first call that needs them.
"""

from headwater._author.define import source
from headwater._author.partitioned import PartitionedSource
from headwater._author.reading import CAUGHT_UP, At
from headwater._author.registry import registered
from headwater._author.secret import Secret
from headwater._author.source import Source
from headwater._errors import HeadwaterError
from headwater._feed.order import shard
from headwater._feed.status import feeds
from headwater._rows.bad_rows import BadRow
from headwater._rsvp_schema import RSVP_SCHEMA
from headwater._spark.session import attach, session
from headwater._spark.stream import stream
from headwater._version import __version__

__all__ = [
    "CAUGHT_UP",
    "RSVP_SCHEMA",
    "At",
    "BadRow",
    "HeadwaterError",
    "PartitionedSource",
    "Secret",
    "Source",
    "__version__",
    "attach",
    "feeds",
    "registered",
    "session",
    "shard",
    "source",
    "stream",
]
