"""Tools for testing sources: a scripted source, and a pytest fixture that runs a query to a condition.

In conftest.py:

    from headwater.testing import stream  # the fixture

In a test:

    def test_a_failing_feed_is_restarted(stream):
        query = stream(ListSource([1, FAIL, 2]), on_error="restart")
        assert query.rows(2) == [(1,), (2,)]
"""

from headwater.testing.running import RunningStream, stream
from headwater.testing.script import END, FAIL, PAUSE, ListSource

__all__ = ["END", "FAIL", "PAUSE", "ListSource", "RunningStream", "stream"]
