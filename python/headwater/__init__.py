"""Sources for Spark Structured Streaming, written in Python, with correct offsets.

    import headwater as hw

    @hw.source("n LONG, square LONG")
    def squares():
        for n in itertools.count():
            yield n, n * n

    spark = hw.session()
    spark.readStream.format("squares").load()

Importing this package imports none of pyspark, py4j, pyarrow and requests; the first call that needs one of
them does.
"""

from headwater._version import __version__
from headwater.errors import HeadwaterError
from headwater.options import Secret
from headwater.registry import registered
from headwater.rsvp_schema import RSVP_SCHEMA
from headwater.source import (
    CAUGHT_UP,
    At,
    BadRow,
    PartitionedSource,
    Source,
    ack_on,
    report_connection,
    shard,
    source,
)
from headwater.spark.attach import attach
from headwater.spark.feeds import feeds
from headwater.spark.foreach import foreach
from headwater.spark.formats import explain_unknown_formats
from headwater.spark.session import session
from headwater.spark.stream import stream

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
    "ack_on",
    "attach",
    "feeds",
    "foreach",
    "registered",
    "report_connection",
    "session",
    "shard",
    "source",
    "stream",
]

explain_unknown_formats()
