"""A feed without Spark, against the other end of its socket: order, failures, stops at awkward moments."""

import asyncio
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from processes import wait_until as wait_for

import headwater as hw
from headwater import registry
from headwater.errors import explain
from headwater.rows.converter import Converter
from headwater.runtime import feed as feed_module
from headwater.runtime.batching import BatchEncoder, BatchSender, ItemBuffer
from headwater.runtime.feed import Feed, ReadLoop
from headwater.runtime.protocol import Address, FeedRequest
from headwater.runtime.threads import FeedStopped
from headwater.source import Shard
from headwater.spark import attach as crossing


class Other:
    """The JVM's end: what was sent, read to its end in a thread of its own."""

    def __init__(self, connection: socket.socket) -> None:
        self.rows: list[int] = []
        self.metadata: list[dict[bytes, bytes]] = []
        self.ended = threading.Event()
        self._connection = connection
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with suppress(OSError, pa.ArrowInvalid, StopIteration):
            stream = pa.ipc.open_stream(self._connection.makefile("rb"))
            while True:
                batch, metadata = stream.read_next_batch_with_custom_metadata()
                self.rows += batch.column(0).to_pylist()
                self.metadata.append(dict(metadata or {}))
        self.ended.set()

    def has(self, key: bytes) -> bool:
        return any(key in found for found in self.metadata)

    @property
    def failure(self) -> str:
        assert self.ended.wait(10)
        return "".join(found.get(b"headwater.failure", b"").decode() for found in self.metadata)


made: list[BatchSender] = []


def an_outlet(
    connection: socket.socket, *, linger: float = 0.01, resumable: bool = False, failed: Any = None
) -> BatchSender:
    from pyspark.sql.types import StructType

    pending = ItemBuffer(resumable=resumable, batch_rows=8192, batch_bytes=400 << 10, array_column=False)
    packing = BatchEncoder(Converter(StructType().add("n", "long")))
    tell = failed or (lambda error: None)
    made.append(BatchSender(connection, packing, pending, shard=0, linger=linger, failed=tell))
    return made[-1]


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs
        while made:
            made[-1].close()
            made.pop().release(10)


def wait_until(condition: Callable[[], bool]) -> None:
    wait_for(condition, lambda: "no more is known", 10)


Pair = tuple[socket.socket, socket.socket]


def run(work: Callable[[], object]) -> threading.Thread:
    def quietly() -> None:
        with suppress(FeedStopped):
            work()

    thread = threading.Thread(target=quietly, daemon=True)
    thread.start()
    return thread


def a_feed(source: Callable[[], Any], connection: socket.socket, on_error: str = "fail") -> Feed:
    """As the JVM would order it, of sources that have no name."""

    class Ordered(FeedRequest):
        def make(self) -> Any:
            return source()

        def secrets(self) -> list[str]:
            return []

    order = Ordered("review.0", "review", {}, Shard(0, 1), "q", on_error, float("inf"), "fail", 0.01, 8192)
    return Feed(order, lambda made, failed: an_outlet(connection, failed=failed), lambda wrong: None)


def test_tables_are_not_drawn_ahead_of_what_is_sent(pair: Pair) -> None:
    drawn = 0

    def tables() -> Iterator[pa.RecordBatch]:
        nonlocal drawn
        table = pa.RecordBatch.from_pydict({"n": list(range(100_000))})
        while True:
            drawn += 1
            yield table

    outlet = an_outlet(pair[0])
    run(lambda: ReadLoop(outlet)._read(tables()))
    stream = pa.ipc.open_stream(pair[1].makefile("rb"))
    assert [stream.read_next_batch().num_rows for _ in range(2)] == [50_000, 50_000]  # one, and no more
    wait_until(lambda: outlet._sending.locked())
    time.sleep(0.3)  # it would draw hundreds in that time
    outlet.close()
    assert drawn <= 3


def test_nothing_follows_a_row_that_the_lingering_thread_could_not_send(pair: Pair) -> None:
    broken, may_fail = threading.Event(), threading.Event()

    def failed(error: BaseException) -> None:
        broken.set()
        may_fail.wait(10)
        outlet.fail(str(error))

    outlet, other = an_outlet(pair[0], failed=failed), Other(pair[1])
    outlet.add((1,))
    outlet.add(("bad",))
    assert broken.wait(10)  # and it is not said yet
    outlet.add((3,))
    for go_on in (outlet.flush, outlet.end):
        with pytest.raises(FeedStopped):
            go_on()
    may_fail.set()
    assert "field 'n'" in other.failure
    assert other.rows == [1]


def test_rows_of_a_source_that_slows_down_do_not_wait(pair: Pair) -> None:
    """The lingering thread looks, finds nothing, and is overtaken before it takes a note of that."""
    outlet, other = an_outlet(pair[0]), Other(pair[1])
    looked, begun, end = threading.Event(), threading.Event(), threading.Event()
    clear = outlet._something.clear

    def late() -> None:
        if not looked.is_set() and threading.current_thread() is outlet._lingering:
            looked.set()
            begun.wait(10)
        clear()

    def rows() -> Iterator[tuple[int]]:
        begun.set()
        wait_until(lambda: not outlet._sending.locked())
        yield (1,)
        end.wait(10)

    outlet._something.clear = late  # type: ignore[method-assign]
    outlet._something.set()
    assert looked.wait(10)
    outlet._is_fast = True
    run(lambda: outlet.pull(rows()))
    wait_until(lambda: other.rows == [1])
    end.set()


def test_what_is_said_at_the_end_of_a_fast_burst_does_not_wait(pair: Pair) -> None:
    outlet, other = an_outlet(pair[0], linger=60), Other(pair[1])
    end = threading.Event()

    def rows() -> Iterator[Any]:
        yield from ((n,) for n in range(100))
        yield hw.CAUGHT_UP
        end.wait(10)

    run(lambda: ReadLoop(outlet)._read(rows()))
    wait_until(lambda: other.has(b"headwater.caught_up"))
    assert other.rows == list(range(100))
    end.set()


def test_a_pause_holds_after_a_fast_burst(pair: Pair) -> None:
    outlet, other = an_outlet(pair[0]), Other(pair[1])
    steps = threading.Semaphore(0)

    def rows() -> Iterator[tuple[int]]:
        for n in range(10_000):
            if n >= 5000:
                steps.acquire()
            yield (n,)

    run(lambda: ReadLoop(outlet)._read(rows()))
    wait_until(lambda: len(other.rows) == 5000)
    outlet.pause()
    steps.release(100)
    time.sleep(0.1)
    assert len(other.rows) <= 5001  # the one that it waited for
    outlet.resume()
    wait_until(lambda: len(other.rows) == 5100)
    steps.release(5000)


def test_an_iterator_in_c_is_left_at_its_next_item(pair: Pair) -> None:
    outlet, other = an_outlet(pair[0]), Other(pair[1])
    ours, theirs = socket.socketpair()
    with ours, theirs, ours.makefile("rb") as lines:
        items = chain(((n,) for n in range(5000)), zip(map(int, lines), strict=True))
        thread = run(lambda: ReadLoop(outlet)._read(items))
        wait_until(lambda: len(other.rows) == 5000)
        outlet.close()
        theirs.sendall(b"1\n2\n")
        thread.join(10)
        assert not thread.is_alive()


def test_a_pause_that_comes_with_the_end_holds_nothing(pair: Pair) -> None:
    outlet = an_outlet(pair[0])
    clear = outlet._flowing.clear

    def late() -> None:
        outlet.close()
        clear()

    outlet._flowing.clear = late  # type: ignore[method-assign]
    outlet.pause()
    thread = run(lambda: outlet.add((1,)))
    thread.join(10)
    assert not thread.is_alive()


def test_lists_and_cursors_may_be_used_again(pair: Pair) -> None:
    outlet, other = an_outlet(pair[0], linger=60), Other(pair[1])
    page: list[tuple[int]] = []
    for n in range(3):
        page.append((n,))
        outlet.add(page)
        page.clear()
    outlet.flush()
    wait_until(lambda: other.rows == [0, 1, 2])
    offsets, rows = {"a": [1]}, [(1,)]
    at = hw.At(offsets, rows)
    offsets["a"][0] = 2
    rows.clear()
    assert (at.cursor, at.rows) == ({"a": [1]}, [(1,)])


def test_a_cursor_is_the_same_after_every_kind_of_restart(pair: Pair) -> None:
    outlet, _ = an_outlet(pair[0], linger=60, resumable=True), Other(pair[1])
    outlet.add(hw.At((1, {2: "x"}), (1,)))
    outlet.flush()
    assert outlet.cursor == [1, {"2": "x"}]
    outlet.add(hw.At("\udcff", (1,)))
    with pytest.raises(TypeError, match="cannot be written as JSON"):
        outlet.flush()


class Scripted(hw.Source, schema="n LONG"):
    def read(self) -> Iterator[Any]:
        yield 1
        raise self.error()

    def error(self) -> BaseException:
        return ValueError("cannot read \udcff.txt")


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


class Silent(Scripted):
    def error(self) -> BaseException:
        return UnspeakableError()


@pytest.mark.parametrize(("source", "said"), [(Scripted, "\\udcff.txt"), (Silent, "UnspeakableError")])
def test_a_failure_is_told_whatever_its_text_is(pair: Pair, source: Any, said: str) -> None:
    feed, other = a_feed(source, pair[0]), Other(pair[1])
    feed.start()
    assert said in other.failure
    assert other.rows == [1]
    assert feed.stop() == "stopped"


def test_a_stop_that_meets_a_restart_ends_the_new_instance(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "back_off", lambda failures: 0.0)
    instances: list[Any] = []
    stopped: list[str] = []

    class Again(hw.Source, schema="n LONG"):
        closed = 0

        def __init__(self) -> None:
            instances.append(self)
            if len(instances) == 2:
                run(lambda: stopped.append(feed.stop()))
                wait_until(lambda: any(thread.name.endswith("-close") for thread in feed._crew._threads))

        async def read(self) -> AsyncIterator[int]:
            if len(instances) == 1:
                raise ValueError("once")
            await asyncio.sleep(60)
            yield 1

        def close(self) -> None:
            self.closed += 1

    feed = a_feed(Again, pair[0], on_error="restart")
    Other(pair[1])
    feed.start()
    wait_until(lambda: bool(stopped))
    assert stopped == ["stopped"]
    assert [source.closed for source in instances] == [1, 1]


def test_a_source_can_be_defined_while_a_session_is_attached(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one has the registry's lock and wants the crossing's; the other must not go the other way."""
    defining, go_on = threading.Event(), threading.Event()

    class Driver:
        is_gone = False

        def register(self, name: str) -> str:
            return ""

    def define() -> None:
        hw.source("n LONG", name="review_defined")(lambda: iter(()))

    def preempted(name: str) -> None:
        if threading.current_thread() is definer:
            defining.set()
            go_on.wait(1)

    monkeypatch.setattr(crossing, "_driver", Driver())
    monkeypatch.setattr(crossing, "connect", lambda: None)
    monkeypatch.setattr(registry, "_sources", {})
    monkeypatch.setattr(registry, "_listeners", [preempted, crossing._register])
    definer = threading.Thread(target=define, daemon=True)
    definer.start()
    assert defining.wait(10)
    joiner = run(lambda: crossing.join(Driver()))  # type: ignore[arg-type]
    for thread in (definer, joiner):
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no Unix domain sockets")
def test_many_feeds_can_open_at_once(tmp_path: Path) -> None:
    place, welcomed = tmp_path / "s", []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place))
        server.listen(50)  # as Java does
        opening = [
            run(lambda: welcomed.append(Address(f"unix:{place}", "x").connect("feed 1"))) for _ in range(200)
        ]
        time.sleep(0.2)  # the JVM is busy
        accepted = []
        for _ in opening:
            accepted.append(server.accept()[0])
            accepted[-1].sendall(b"ok\n")
        for thread in opening:
            thread.join(10)
        for connection in [*accepted, *welcomed]:
            connection.close()
    assert len(welcomed) == 200


def test_a_secret_that_begins_another_does_not_uncover_it() -> None:
    told = explain(ValueError("key abc and key abcdef\nabc"), ["abc", "abcdef"])
    assert "abc" not in told
    assert "def" not in told


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_the_end_of_a_forked_process_leaves_the_feeds_alone(pair: Pair) -> None:
    from headwater.runtime.host import Host

    outlet, other = an_outlet(pair[0]), Other(pair[1])
    host = Host.__new__(Host)
    host._lock, host._process = threading.Lock(), os.getpid()
    host._feeds = {"f": type("F", (), {"outlet": outlet})()}
    child = os.fork()
    if child == 0:
        host._let_go()
        os._exit(0)
    os.waitpid(child, 0)
    outlet.add((1,))
    outlet.flush()
    wait_until(lambda: other.rows == [1])
    outlet.close()
