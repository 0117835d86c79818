"""Sources for Spark Structured Streaming, with correct offsets.

    import headwater as hw
    from headwater.sources import random_alpha

    spark = hw.session()
    words = hw.stream(spark, random_alpha(len=5), max_rows_per_trigger=1000)

Importing this package imports neither pyspark nor py4j: they come in with the first call that needs them.
"""

from headwater._errors import HeadwaterError
from headwater._session import attach, session
from headwater._stream import stream
from headwater._version import __version__

__all__ = ["HeadwaterError", "__version__", "attach", "session", "stream"]
