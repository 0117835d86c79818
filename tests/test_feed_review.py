"""A feed without Spark, with the test at the other end of its socket: order, failures, stops at bad moments.

Imports private modules: these moments last microseconds, and cannot be hit through a query.
"""

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
from processes import fork
from processes import wait_until as wait_for

import headwater as hw
from headwater import registry, trust
from headwater.errors import explain
from headwater.rows.converter import Converter
from headwater.runtime import threads
from headwater.runtime.batching import BatchEncoder, BatchSender, ItemBuffer
from headwater.runtime.feed import Feed, ReadLoop
from headwater.runtime.protocol import Address, FeedRequest
from headwater.runtime.threads import AuthorThread, Deadline, FeedStopped
from headwater.source import Shard
from headwater.spark import attach as attach_module


class JvmEnd:
    """The JVM's end of the socket. A thread reads what the feed sends."""

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
        return any(key in metadata for metadata in self.metadata)

    @property
    def failure(self) -> str:
        assert self.ended.wait(10)
        return "".join(metadata.get(b"headwater.failure", b"").decode() for metadata in self.metadata)


senders: list[BatchSender] = []


def a_sender(
    connection: socket.socket, *, linger: float = 0.01, resumable: bool = False, on_error: Any = None
) -> BatchSender:
    from pyspark.sql.types import StructType

    buffer = ItemBuffer(resumable=resumable, batch_rows=8192, batch_bytes=400 << 10, array_column=False)
    encoder = BatchEncoder(Converter(StructType().add("n", "long")))
    on_error = on_error or (lambda error: None)
    senders.append(BatchSender(connection, encoder, buffer, shard=0, linger=linger, on_error=on_error))
    return senders[-1]


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs
        while senders:
            senders[-1].close()
            senders.pop().release(soon())


def soon() -> Deadline:
    return Deadline.after(10)


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


def a_feed(make: Callable[[], Any], connection: socket.socket, on_error: str = "fail") -> Feed:
    """As the JVM requests it, for a source that has no name. It restarts without a delay."""

    class Unnamed(FeedRequest):
        def make_source(self) -> Any:
            return make()

        def secrets(self) -> list[str]:
            return []

    request = Unnamed(
        feed="review.0",
        source="review",
        options={},
        shard=Shard(0, 1),
        query="q",
        on_error=on_error,
        max_restarts=None,
        on_bad_row="fail",
        linger=0.01,
        batch_rows=8192,
    )
    return Feed(
        request,
        lambda source, on_error: a_sender(connection, on_error=on_error),
        lambda error: None,
        restart_delay=lambda failures: 0.0,
    )


def test_no_table_is_drawn_before_the_one_before_it_was_sent(pair: Pair) -> None:
    drawn = 0

    def tables() -> Iterator[pa.RecordBatch]:
        nonlocal drawn
        table = pa.RecordBatch.from_pydict({"n": list(range(100_000))})
        while True:
            drawn += 1
            yield table

    sender = a_sender(pair[0])
    run(lambda: ReadLoop(sender)._read(tables()))
    stream = pa.ipc.open_stream(pair[1].makefile("rb"))
    assert [stream.read_next_batch().num_rows for _ in range(2)] == [50_000, 50_000]  # one, and no more
    wait_until(lambda: sender._sending.locked())
    time.sleep(0.3)  # it would draw hundreds in that time
    sender.close()
    assert drawn <= 3


def test_no_row_follows_one_that_the_linger_thread_could_not_send(pair: Pair) -> None:
    broken, may_fail = threading.Event(), threading.Event()

    def on_error(error: BaseException) -> None:
        broken.set()
        may_fail.wait(10)
        sender.fail(str(error))

    sender, jvm = a_sender(pair[0], on_error=on_error), JvmEnd(pair[1])
    sender.add((1,))
    sender.add(("bad",))
    assert broken.wait(10)  # and it is not reported yet
    sender.add((3,))
    for send in (sender.flush, sender.end):
        with pytest.raises(FeedStopped):
            send()
    may_fail.set()
    assert "field 'n'" in jvm.failure
    assert jvm.rows == [1]


def test_rows_of_a_source_that_slows_down_do_not_wait(pair: Pair) -> None:
    """The linger thread finds nothing, and is overtaken before it clears the event."""
    sender, jvm = a_sender(pair[0]), JvmEnd(pair[1])
    looked, begun, end = threading.Event(), threading.Event(), threading.Event()
    clear = sender._has_items.clear

    def late() -> None:
        if not looked.is_set() and threading.current_thread() is sender._linger_thread:
            looked.set()
            begun.wait(10)
        clear()

    def rows() -> Iterator[tuple[int]]:
        begun.set()
        wait_until(lambda: not sender._sending.locked())
        yield (1,)
        end.wait(10)

    sender._has_items.clear = late  # type: ignore[method-assign]
    sender._has_items.set()
    assert looked.wait(10)
    sender._is_fast = True
    run(lambda: sender.pull(rows()))
    wait_until(lambda: jvm.rows == [1])
    end.set()


def test_caught_up_at_the_end_of_a_fast_burst_is_sent_at_once(pair: Pair) -> None:
    sender, jvm = a_sender(pair[0], linger=60), JvmEnd(pair[1])
    end = threading.Event()

    def rows() -> Iterator[Any]:
        yield from ((n,) for n in range(100))
        yield hw.CAUGHT_UP
        end.wait(10)

    run(lambda: ReadLoop(sender)._read(rows()))
    wait_until(lambda: jvm.has(b"headwater.caught_up"))
    assert jvm.rows == list(range(100))
    end.set()


def test_a_pause_holds_after_a_fast_burst(pair: Pair) -> None:
    sender, jvm = a_sender(pair[0]), JvmEnd(pair[1])
    steps = threading.Semaphore(0)

    def rows() -> Iterator[tuple[int]]:
        for n in range(10_000):
            if n >= 5000:
                steps.acquire()
            yield (n,)

    run(lambda: ReadLoop(sender)._read(rows()))
    wait_until(lambda: len(jvm.rows) == 5000)
    sender.pause()
    steps.release(100)
    time.sleep(0.1)
    assert len(jvm.rows) <= 5001  # the one that it waited for
    sender.resume()
    wait_until(lambda: len(jvm.rows) == 5100)
    steps.release(5000)


def test_a_closed_feed_leaves_an_iterator_in_c_at_its_next_item(pair: Pair) -> None:
    sender, jvm = a_sender(pair[0]), JvmEnd(pair[1])
    ours, theirs = socket.socketpair()
    with ours, theirs, ours.makefile("rb") as lines:
        items = chain(((n,) for n in range(5000)), zip(map(int, lines), strict=True))
        thread = run(lambda: ReadLoop(sender)._read(items))
        wait_until(lambda: len(jvm.rows) == 5000)
        sender.close()
        theirs.sendall(b"1\n2\n")
        thread.join(10)
        assert not thread.is_alive()


def test_a_pause_at_the_moment_of_the_end_holds_nothing_back(pair: Pair) -> None:
    sender = a_sender(pair[0])
    clear = sender._flowing.clear

    def late() -> None:
        sender.close()
        clear()

    sender._flowing.clear = late  # type: ignore[method-assign]
    sender.pause()
    thread = run(lambda: sender.add((1,)))
    thread.join(10)
    assert not thread.is_alive()


def test_an_author_may_reuse_lists_and_cursors(pair: Pair) -> None:
    sender, jvm = a_sender(pair[0], linger=60), JvmEnd(pair[1])
    page: list[tuple[int]] = []
    for n in range(3):
        page.append((n,))
        sender.add(page)
        page.clear()
    sender.flush()
    wait_until(lambda: jvm.rows == [0, 1, 2])
    offsets, rows = {"a": [1]}, [(1,)]
    at = hw.At(offsets, rows)
    offsets["a"][0] = 2
    rows.clear()
    assert (at.cursor, at.rows) == ({"a": [1]}, [(1,)])


def test_a_cursor_is_the_same_after_every_kind_of_restart(pair: Pair) -> None:
    sender, _ = a_sender(pair[0], linger=60, resumable=True), JvmEnd(pair[1])
    sender.add(hw.At((1, {2: "x"}), (1,)))
    sender.flush()
    assert sender.cursor == [1, {"2": "x"}]
    sender.add(hw.At("\udcff", (1,)))
    with pytest.raises(TypeError, match="cannot be written as JSON"):
        sender.flush()


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


@pytest.mark.parametrize(("source", "text"), [(Scripted, "\\udcff.txt"), (Silent, "UnspeakableError")])
def test_a_failure_is_reported_whatever_its_message_is(pair: Pair, source: Any, text: str) -> None:
    feed, jvm = a_feed(source, pair[0]), JvmEnd(pair[1])
    feed.start()
    assert text in jvm.failure
    assert jvm.rows == [1]
    assert feed.stop(soon()) == "stopped"


def test_a_stop_during_a_restart_closes_the_new_instance(pair: Pair) -> None:
    instances: list[Any] = []
    stopped: list[str] = []

    class Again(hw.Source, schema="n LONG"):
        closed = 0

        def __init__(self) -> None:
            instances.append(self)
            if len(instances) == 2:
                run(lambda: stopped.append(feed.stop(soon())))
                wait_until(lambda: any(thread.name.endswith("-close") for thread in feed._threads._threads))

        async def read(self) -> AsyncIterator[int]:
            if len(instances) == 1:
                raise ValueError("once")
            await asyncio.sleep(60)
            yield 1

        def close(self) -> None:
            self.closed += 1

    feed = a_feed(Again, pair[0], on_error="restart")
    JvmEnd(pair[1])
    feed.start()
    wait_until(lambda: bool(stopped))
    assert stopped == ["stopped"]
    assert [source.closed for source in instances] == [1, 1]


class Cleaning(hw.Source, schema="n LONG"):
    """Blocks in one way, and cleans up until the test lets it finish. An interrupt would end its loops."""

    def __init__(self) -> None:
        self.closed, self.finish, self.is_reading = threading.Event(), threading.Event(), threading.Event()
        self.events: list[str] = []

    def blocking(self) -> Iterator[int]:
        raise NotImplementedError

    def read(self) -> Iterator[int]:
        try:
            self.is_reading.set()
            yield from self.blocking()
        finally:
            self.wait_for_the_test("finally")

    def on_stop(self) -> None:
        self.wait_for_the_test("on_stop")

    def close(self) -> None:
        self.closed.set()

    def wait_for_the_test(self, where: str) -> None:
        self.events.append(f"{where} begins")
        while not self.finish.is_set():
            time.sleep(0.001)
        self.events.append(f"{where} ends")


class AtYield(Cleaning):
    def blocking(self) -> Iterator[int]:
        while True:
            yield 1


class InPython(Cleaning):
    def blocking(self) -> Iterator[int]:
        while True:
            time.sleep(0.001)
        yield 1


class UntilClose(Cleaning):
    def blocking(self) -> Iterator[int]:
        self.closed.wait()
        yield from ()


class Awaiting(Cleaning):
    async def read(self) -> AsyncIterator[int]:  # type: ignore[override]
        try:
            self.is_reading.set()
            await asyncio.sleep(3600)
            yield 1
        finally:
            self.events.append("finally begins")
            while not self.finish.is_set():
                await asyncio.sleep(0.001)
            self.events.append("finally ends")


@pytest.mark.parametrize("cls", [AtYield, InPython, UntilClose, Awaiting], ids=lambda cls: cls.__name__)
def test_cleanup_is_never_interrupted_and_runs_once(pair: Pair, cls: type[Cleaning]) -> None:
    source = cls()
    feed = a_feed(lambda: source, pair[0])
    JvmEnd(pair[1])
    feed.start()
    assert source.is_reading.wait(10)
    assert feed.stop(Deadline.after(0.5)) == "abandoned"
    source.finish.set()
    wait_until(lambda: not feed.is_alive)
    assert source.events == ["finally begins", "finally ends", "on_stop begins", "on_stop ends"]


def test_a_cleanup_that_begins_just_when_it_is_interrupted_still_runs_to_its_end() -> None:
    """An interrupt is raised some time after it was sent, perhaps when cleanup has begun."""
    for _ in range(200):
        began, ended = threading.Event(), threading.Event()

        def work(began: threading.Event = began, ended: threading.Event = ended) -> None:
            with suppress(FeedStopped):
                began.set()
                sum(range(500))
            thread = threading.current_thread()
            assert isinstance(thread, AuthorThread)
            thread.forbid_interrupt()
            sum(range(2000))
            ended.set()

        thread = AuthorThread(work, "cleaning-up")
        thread.start()
        began.wait()
        thread.interrupt()
        thread.join(10)
        assert ended.is_set()


class Deaf(hw.Source, schema="n LONG"):
    release: threading.Event

    def read(self) -> Iterator[int]:
        yield 1
        type(self).release.wait()  # the line that is named


class DeafWithClose(Deaf):
    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("cls", "remedy"),
    [(Deaf, "add close(), which has to unblock it"), (DeafWithClose, "close() does not unblock it")],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_feed_that_cannot_be_ended_says_where_it_is_blocked(
    pair: Pair, caplog: pytest.LogCaptureFixture, cls: type[Deaf], remedy: str
) -> None:
    cls.release = threading.Event()
    jvm = JvmEnd(pair[1])
    feed = a_feed(cls, pair[0])
    feed.start()
    wait_until(lambda: jvm.rows == [1])
    assert feed.stop(Deadline.after(0.2)) == "abandoned"
    lines = Path(__file__).read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "# the line that is named" in text)
    assert f"read() is blocked at {Path(__file__).name}:{line}; {remedy}" in caplog.text
    cls.release.set()
    wait_until(lambda: not feed.is_alive)


def test_a_source_that_blocks_when_it_is_made_says_so(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    is_made, release = threading.Event(), threading.Event()

    class Making(hw.Source, schema="n LONG"):
        def __init__(self) -> None:
            is_made.set()
            release.wait()

        def read(self) -> Iterator[int]:
            yield 1

    feed = a_feed(Making, pair[0])
    feed.start()
    assert is_made.wait(10)
    assert feed.stop(Deadline.after(0.2)) == "abandoned"
    assert f"is blocked at {Path(__file__).name}:" in caplog.text
    assert "a source must not wait before its read()" in caplog.text
    release.set()
    wait_until(lambda: not feed.is_alive)


def test_a_thread_that_has_ended_is_not_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ident may be that of another thread by then, in which nothing may be raised."""
    thread = AuthorThread(lambda: None, "review")
    thread.start()
    thread.join()
    interrupted: list[int] = []
    monkeypatch.setattr(threads, "_set_async_exception", lambda ident, _: interrupted.append(ident))
    thread.interrupt()
    assert interrupted == []


def test_a_source_can_be_defined_while_a_session_is_attached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Defining takes the registry's lock, then that of `attach`: attaching must not take them in reverse."""
    defining, proceed = threading.Event(), threading.Event()

    class Driver:
        is_gone = False

        def register(self, name: str) -> str:
            return ""

        def trust(self) -> trust.Trust:
            return trust.current

    def define() -> None:
        hw.source("n LONG", name="review_defined")(lambda: iter(()))

    def preempted(name: str) -> None:
        if threading.current_thread() is definer:
            defining.set()
            proceed.wait(1)

    monkeypatch.setattr(attach_module, "_driver", Driver())
    monkeypatch.setattr(attach_module, "connect", lambda: None)
    monkeypatch.setattr(registry, "_sources", {})
    monkeypatch.setattr(registry, "_listeners", [preempted, attach_module._register])
    definer = threading.Thread(target=define, daemon=True)
    definer.start()
    assert defining.wait(10)
    attacher = run(lambda: attach_module.use_driver(Driver()))  # type: ignore[arg-type]
    for thread in (definer, attacher):
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no Unix domain sockets")
def test_many_feeds_can_connect_at_once(tmp_path: Path) -> None:
    path, connections = tmp_path / "s", []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(50)  # as Java does
        opening = [
            run(lambda: connections.append(Address(f"unix:{path}", "x").connect("feed 1")))
            for _ in range(200)
        ]
        time.sleep(0.2)  # the JVM is busy
        accepted = []
        for _ in opening:
            accepted.append(server.accept()[0])
            accepted[-1].sendall(b"ok\n")
        for thread in opening:
            thread.join(10)
        for connection in [*accepted, *connections]:
            connection.close()
    assert len(connections) == 200


def test_a_secret_that_is_the_beginning_of_another_does_not_reveal_it() -> None:
    message = explain(ValueError("key abc and key abcdef\nabc"), ["abc", "abcdef"])
    assert "abc" not in message
    assert "def" not in message


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_the_exit_of_a_forked_process_does_not_disconnect_feeds(pair: Pair) -> None:
    from headwater.runtime.host import Host

    sender, jvm = a_sender(pair[0]), JvmEnd(pair[1])
    feed = a_feed(Scripted, pair[0])
    feed.sender = sender
    host = Host.__new__(Host)
    host._lock, host._process = threading.Lock(), os.getpid()
    host._feeds = {"f": feed}
    child = fork()
    if child == 0:
        host._disconnect_all()
        os._exit(0)
    os.waitpid(child, 0)
    sender.add((1,))
    sender.flush()
    wait_until(lambda: jvm.rows == [1])
    sender.close()


class Forking(hw.Source, schema="n LONG"):
    """Forks between its rows. The child goes on in one of several ways; its parent waits for it."""

    def __init__(self, way: str, folder: str) -> None:
        self._way = way
        self._folder = Path(folder)

    def read(self) -> Iterator[Any]:
        yield 1
        child = fork()
        if child == 0:
            yield from self._go_on()
            return
        self._note(f"exit {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}")
        yield 2

    def _go_on(self) -> Iterator[Any]:
        if self._way == "yield":
            while True:
                yield 3
        if self._way == "yield a table":
            yield pa.table({"n": [3] * 10_000})
        if self._way == "raise":
            raise ValueError("in the child")

    def on_failure(self, error: BaseException) -> None:
        self._note("failure")

    def close(self) -> None:
        self._note("close")

    def _note(self, what: str) -> None:
        (self._folder / f"{os.getpid()} {what}").touch()


class AsyncForking(Forking):
    async def read(self) -> AsyncIterator[Any]:  # type: ignore[override]
        for item in super().read():
            await asyncio.sleep(0)
            yield item


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")


@forks
@pytest.mark.parametrize("source", [Forking, AsyncForking])
@pytest.mark.parametrize("way", ["yield", "yield a table", "raise", "return"])
def test_a_forked_child_that_goes_on_reading_is_ended_and_sends_nothing(
    pair: Pair, tmp_path: Path, source: Any, way: str
) -> None:
    feed, jvm = a_feed(lambda: source(way, str(tmp_path)), pair[0]), JvmEnd(pair[1])
    feed.start()
    assert jvm.ended.wait(30)
    assert (jvm.rows, jvm.failure) == ([1, 2], "")
    assert feed.stop(soon()) == "stopped"
    assert {note.name for note in tmp_path.iterdir()} == {f"{os.getpid()} exit 1", f"{os.getpid()} close"}


@forks
def test_a_forked_child_has_no_copy_of_the_connections(pair: Pair) -> None:
    from headwater.runtime.protocol import ControlConnection

    sender, jvm = a_sender(pair[0]), JvmEnd(pair[1])
    ours, theirs = socket.socketpair()

    class Connected(Address):
        def connect(self, role: str) -> socket.socket:
            return ours

    control = ControlConnection(Connected("unix:none", "none"), lambda request, reply: None, lambda: None)
    numbers = [pair[0].fileno(), ours.fileno()]
    with sender._sending:  # another thread may hold it when the process forks
        child = fork()
        if child == 0:
            status = 0
            for number in numbers:
                with suppress(OSError):
                    os.write(number, b"from the child")
                    status = 1
            with suppress(FeedStopped):
                sender.flush()
                sender.close()
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    sender.add((1,))
    sender.flush()
    wait_until(lambda: jvm.rows == [1])
    theirs.close()
    wait_until(lambda: not control.is_alive)


@forks
def test_in_a_forked_child_the_driver_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that is defined there would connect to the JVM, in the place of its parent."""
    from pyspark import SparkContext

    from headwater.spark.py4j import Driver

    driver = Driver.__new__(Driver)
    driver._process, driver._gateway = os.getpid(), type("Gateway", (), {"proc": None})()
    monkeypatch.setattr(SparkContext, "_gateway", driver._gateway)
    assert not driver.is_gone
    child = fork()
    if child == 0:
        os._exit(0 if driver.is_gone else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


class Empty(Scripted):
    """Falsy, as a container without items is."""

    def __init__(self) -> None:
        self.acknowledged: list[Any] = []

    def __len__(self) -> int:
        return 0

    def read(self) -> Iterator[Any]:
        yield 1

    def ack(self, cursor: Any) -> None:
        self.acknowledged.append(cursor)


def test_a_source_that_is_falsy_is_made_once_and_acknowledged(pair: Pair) -> None:
    sources: list[Empty] = []

    def make() -> Empty:
        sources.append(Empty())
        return sources[-1]

    feed, jvm = a_feed(make, pair[0]), JvmEnd(pair[1])
    feed.start()
    assert jvm.ended.wait(10)
    feed.acknowledge("end")
    wait_until(lambda: sources[0].acknowledged == ["end"])
    assert feed.stop(soon()) == "stopped"
    assert (jvm.rows, len(sources)) == ([1], 1)
