"""`feeds`: the status of everything that runs in this process for Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.notebook import HtmlList
from headwater.spark import attach

if TYPE_CHECKING:
    from headwater.runtime.status import FeedStatus

__all__ = ["feeds"]


def feeds() -> list[FeedStatus]:
    """The feeds of all queries on Python sources, and those of stopped queries whose threads did not end.

    A partitioned source has one entry, which lists its partitions. A notebook shows the list as a table.

    >>> import headwater as hw
    >>> from headwater.testing import ListSource, RunningStream
    >>> running = RunningStream(spark, ListSource([1, 2]))
    >>> rows = running.rows(2)
    >>> status = [(feed.source, feed.rows) for feed in hw.feeds() if feed.state == "running"]
    >>> running.stop()
    >>> print(status)
    [('list_source', 2)]
    """
    from headwater.runtime.status import status_of

    connection = attach.current()
    if connection is None:
        return HtmlList()
    driver, host = connection
    running = host.feeds
    jvm_status = driver.status() if running else {}
    return HtmlList(status_of(feed, jvm_status) for feed in running)
