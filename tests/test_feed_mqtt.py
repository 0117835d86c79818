"""The source `mqtt` with a real mosquitto: what arrives, what is acknowledged when, and who may die."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import paho.mqtt.client as paho
import pytest
from http_server import certificate
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from processes import running, wait_until
from servers import PASSWORD, Mosquitto, mosquitto

import headwater as hw
from headwater.sources import mqtt
from headwater.sources.mqtt import _Release, _Session  # private: a broker repeats when it likes to
from headwater.testing import RunningStream

Stream = Callable[..., RunningStream]

SOON = timedelta(milliseconds=20)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with mosquitto(tmp_path / "broker") as running:
        yield running


@pytest.fixture(autouse=True)
def no_thread_survives() -> Iterator[None]:
    yield
    wait_until(lambda: not paho_threads(), paho_threads)


def paho_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("paho")]


@contextmanager
def publisher(broker: Mosquitto, user: str = "", password: str = "") -> Iterator[paho.Client]:
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.username_pw_set(user or None, password or None)
    client.connect("127.0.0.1", broker.port)
    client.loop_start()
    try:
        yield client
    finally:
        client.disconnect()
        client.loop_stop()


def publish(broker: Mosquitto, first: int, end: int, qos: int = 1) -> None:
    """Returns when the broker has them."""
    with publisher(broker) as client:
        sent = [client.publish(f"n/{n % 3}", str(n), qos) for n in range(first, end)]
        for info in sent:
            info.wait_for_publish(60)
            assert info.is_published()


def publish_one(
    broker: Mosquitto, topic: str, payload: bytes, user: str = "", password: str = "", **options: Any
) -> None:
    with publisher(broker, user, password) as client:
        client.publish(topic, payload, 1, **options).wait_for_publish(60)


def source(broker: Mosquitto, **options: Any) -> Any:
    defaults = {"topics": ["n/#"], "client_id": "reader", "retry": SOON}
    return mqtt(broker.url, **{**defaults, **options})


def register(broker: Mosquitto, qos: int = 1, version: str = "5") -> None:
    """Makes the broker keep messages for the source, as an earlier run of it would have done."""
    is_5 = version == "5"
    client = paho.Client(
        paho.CallbackAPIVersion.VERSION2,
        "reader",
        protocol=paho.MQTTv5 if is_5 else paho.MQTTv311,
        clean_session=None if is_5 else False,
    )
    subscribed = threading.Event()
    client.on_subscribe = lambda *_: subscribed.set()
    session = Properties(PacketTypes.CONNECT)
    session.SessionExpiryInterval = 3600
    client.connect(
        "127.0.0.1", broker.port, **({"clean_start": False, "properties": session} if is_5 else {})
    )
    client.loop_start()
    client.subscribe("n/#", qos)
    assert subscribed.wait(60)
    client.disconnect()
    client.loop_stop()


def wait_for_end(broker: Mosquitto, client_id: str) -> None:
    def has_ended() -> bool:
        lines = [line for line in broker.log.read_text().splitlines() if client_id in line]
        return bool(lines) and "disconnected" in lines[-1]

    wait_until(has_ended, broker.log.read_text)


class Items:
    """What `read` yields, message by message or item by item."""

    def __init__(self, source: Any, since: Any) -> None:
        self.source = source
        self.iterator = source.read(since)

    def __iter__(self) -> Items:
        return self

    def __next__(self) -> hw.At:
        return next(self.iterator)

    def payloads(self, count: int, *, ack: bool = False) -> list[int]:
        payloads: list[int] = []
        while len(payloads) < count:
            item = next(self)
            payloads += [int(row["payload"]) for row in to_rows(item)]
            if ack:
                self.source.ack(item.cursor)
        return payloads


def to_rows(item: hw.At) -> list[Any]:
    return item.rows if isinstance(item.rows, list) else item.rows.to_pylist()


@contextmanager
def reading(source: Any, since: Any = None) -> Iterator[Items]:
    """Reads a source without Spark, in this thread. If a message never comes, the test fails."""
    items = Items(source, since)
    watchdog = threading.Timer(60, source.close)
    watchdog.start()
    try:
        yield items
    finally:
        watchdog.cancel()
        source.close()
        items.iterator.close()


def numbers(rows: list[Any]) -> list[int]:
    return [int(row.payload) for row in rows]


class Proxy:
    """Forwards connections to a broker until they are cut."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"mqtt://127.0.0.1:{self._listener.getsockname()[1]}"
        self._start(self._accept)

    def cut(self) -> None:
        for pair in self._pairs:
            for end in pair:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join()

    def _start(self, target: Callable[..., None], *args: Any) -> None:
        self._threads.append(threading.Thread(target=target, args=args))
        self._threads[-1].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                inner = self._listener.accept()[0], socket.create_connection(("127.0.0.1", self._port))
                self._pairs.append(inner)
                self._start(self._forward, *inner)
                self._start(self._forward, *reversed(inner))

    def _forward(self, reader: socket.socket, writer: socket.socket) -> None:
        with suppress(OSError):
            while data := reader.recv(65_536):
                writer.sendall(data)
        with suppress(OSError):
            writer.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy(broker: Mosquitto) -> Iterator[Proxy]:
    running = Proxy(broker.port)
    yield running
    running.close()


# Columns


def test_a_message_is_a_row_with_topic_qos_retain_properties_and_time(broker: Mosquitto) -> None:
    before = datetime.now(timezone.utc)
    properties = Properties(PacketTypes.PUBLISH)
    properties.UserProperty = ("unit", "°C")
    properties.ContentType = "text/plain"
    publish_one(broker, "n/kept", b"\xff\x00", retain=True, properties=properties)
    with reading(source(broker)) as items:
        (kept,) = to_rows(next(items))
        publish_one(broker, "n/new", b"")
        (new,) = to_rows(next(items))
    assert items.source.schema.names == ["payload", "topic", "qos", "retain", "properties", "arrived"]
    assert (kept["payload"], kept["topic"], kept["qos"], kept["retain"]) == (b"\xff\x00", "n/kept", 1, True)
    assert dict(kept["properties"]) == {"unit": "°C", "ContentType": "text/plain"}
    assert before <= kept["arrived"] <= datetime.now(timezone.utc)
    assert (new["payload"], new["retain"], new["properties"]) == (b"", False, None)


@pytest.mark.parametrize(
    ("options", "names", "first"),
    [
        ({"decode": "text"}, ["payload", "topic", "qos", "retain", "properties", "arrived"], "17"),
        ({"decode": "json", "schema": "a INT"}, ["a"], 17),
        ({"decode": "json", "schema": "a INT", "metadata": True}, ["a", "topic"], 17),
    ],
    ids=["text", "json", "metadata"],
)
def test_payloads_are_decoded(broker: Mosquitto, options: Any, names: list[str], first: Any) -> None:
    payload = b"17" if options["decode"] == "text" else b'{"a": 17}'
    publish_one(broker, "n/1", payload, retain=True)
    with reading(source(broker, **options)) as items:
        (row,) = to_rows(next(items))
    assert list(row)[: len(names)] == names
    assert row[names[0]] == first


@pytest.mark.parametrize("decode", ["text", "json"])
def test_a_payload_that_cannot_be_decoded_is_a_bad_row(broker: Mosquitto, decode: str) -> None:
    schema = "a INT" if decode == "json" else None
    publish_one(broker, "n/1", b"\xff{", retain=True)
    with reading(source(broker, decode=decode, schema=schema)) as items:
        (row,) = next(items).rows
    assert isinstance(row, hw.BadRow)
    assert row.value == b"\xff{"


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_retained_messages_come_once_over_restarts(broker: Mosquitto, version: str) -> None:
    publish_one(broker, "n/kept", b"1", retain=True)
    with reading(source(broker, version=version)) as items:
        item = next(items)
        items.source.ack(item.cursor)
    wait_for_end(broker, "reader")
    publish_one(broker, "n/new", b"2")
    with reading(source(broker, version=version), item.cursor) as items:
        assert items.payloads(1) == [2]


# Acknowledgements


@pytest.mark.parametrize("version", ["5", "3.1.1"])
@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_not_acknowledged_comes_again(broker: Mosquitto, qos: int, version: str) -> None:
    options: dict[str, Any] = {"qos": qos, "version": version}
    register(broker, **options)
    publish(broker, 0, 10, qos)
    with reading(source(broker, **options)) as items:
        assert items.payloads(10) == list(range(10))
    wait_for_end(broker, "reader")
    with reading(source(broker, **options)) as items:
        assert items.payloads(10, ack=True) == list(range(10))
        publish(broker, 10, 11, qos)
        assert items.payloads(1) == [10]
        wait_for_end(broker, "auto-")  # the publisher has gone, so the broker has the acknowledgements
    wait_for_end(broker, "reader")
    with reading(source(broker, **options)) as items:
        assert items.payloads(1) == [10]


def test_a_message_of_qos_2_whose_row_is_durable_is_not_a_row_again(broker: Mosquitto) -> None:
    """The driver dies when the rows are durable and nothing is acknowledged."""
    register(broker, qos=2)
    publish(broker, 0, 100, 2)
    with reading(source(broker, qos=2)) as items:
        item = next(items)
        durable = len(to_rows(item))
    wait_for_end(broker, "reader")
    publish(broker, 100, 101, 2)
    with reading(source(broker, qos=2), item.cursor) as items:
        assert items.payloads(101 - durable, ack=True) == list(range(durable, 101))


@pytest.mark.parametrize("qos", [1, 2])
def test_no_more_messages_come_than_receive_maximum_without_an_acknowledgement(
    broker: Mosquitto, qos: int
) -> None:
    register(broker, qos=qos)
    publish(broker, 0, 100, qos)
    with reading(source(broker, qos=qos, receive_maximum=7)) as items:
        assert items.payloads(7) == list(range(7))
        publish_one(broker, "n/later", b"100")  # the broker has time to send more
        assert not items.source._connection._queue
        items.source.ack({"n": 7})
        assert items.payloads(1, ack=True)[0] == 7


def test_a_full_queue_is_not_filled_any_further(broker: Mosquitto, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[mqtt.__module__], "_MAX_QUEUED_BYTES", 1000)
    publish_one(broker, "n/1", b"x" * 100, retain=True)
    with reading(source(broker, qos=0, client_id=None)) as items:
        next(items)
        with publisher(broker) as client:
            for _ in range(200):
                client.publish("n/1", b"x" * 100).wait_for_publish(60)
        queue = items.source._connection._queue
        wait_until(lambda: len(queue) >= 10, lambda: len(queue))
        assert len(queue) == 10
        rows = 0
        while rows < 200:
            rows += len(to_rows(next(items)))
        assert rows == 200


def test_a_query_that_acknowledges_nothing_is_warned(
    broker: Mosquitto, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys.modules[mqtt.__module__], "_SILENT_SECONDS", 0.05)
    publish_one(broker, "n/1", b"1", retain=True)

    def publish_when_warned() -> None:
        wait_until(lambda: "The query needs a checkpointLocation" in caplog.text, lambda: caplog.text)
        publish_one(broker, "n/2", b"2")

    with reading(source(broker)) as items:
        assert items.payloads(1) == [1]
        thread = threading.Thread(target=publish_when_warned)
        thread.start()
        assert items.payloads(1) == [2]
        thread.join()
    assert caplog.text.count("none was acknowledged") == 1


def message(mid: int, payload: bytes, qos: int = 1, dup: bool = False) -> Any:
    return SimpleNamespace(mid=mid, topic="t", payload=payload, qos=qos, dup=dup)


class Replies:
    """A connection that remembers what it was told to send."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, str]] = []

    def reply(self, replies: list[tuple[int, str]]) -> None:
        self.sent += replies


def test_a_repeat_on_a_new_connection_is_dropped_and_acknowledged_when_it_is_durable() -> None:
    session, first, second = _Session(None), Replies(), Replies()
    session.use(first, is_continued=False)
    assert all(session.is_new(message(mid, b"%d" % mid)) for mid in (1, 2))
    session.use(second, is_continued=True)
    session.acknowledge(1)
    assert (first.sent, second.sent) == ([], [])
    assert not session.is_new(message(1, b"1", dup=True))
    assert not session.is_new(message(2, b"2", dup=True))
    assert second.sent == [(1, "PUBACK")]
    session.acknowledge(2)
    assert second.sent == [(1, "PUBACK"), (2, "PUBACK")]


@pytest.mark.parametrize(
    ("again", "is_continued"),
    [(message(1, b"2", dup=True), True), (message(1, b"1"), True), (message(1, b"1", dup=True), False)],
    ids=["other content", "not marked as a repeat", "a new session"],
)
def test_what_may_be_another_message_is_a_row(again: Any, is_continued: bool) -> None:
    session = _Session(None)
    session.use(Replies(), is_continued=False)
    assert session.is_new(message(1, b"1"))
    session.use(Replies(), is_continued=is_continued)
    assert session.is_new(again)


def test_a_packet_id_of_qos_2_is_free_once_it_is_durable_that_it_was_released() -> None:
    session, replies = _Session(None), Replies()
    session.use(replies, is_continued=False)
    assert session.is_new(message(5, b"1", qos=2))
    assert session.cursor() == {"n": 1, "received": [[5, 5]]}
    session.acknowledge(1)
    assert not session.is_new(_Release(5))
    assert replies.sent == [(5, "PUBREC")]
    assert session.has_changed
    assert session.cursor() == {"n": 2}
    session.acknowledge(2)
    assert replies.sent == [(5, "PUBREC"), (5, "PUBCOMP")]
    restarted, replies = _Session({"n": 1, "received": [[5, 6]]}), Replies()
    restarted.use(replies, is_continued=True)
    assert not restarted.is_new(message(5, b"1", qos=2, dup=True))
    assert replies.sent == [(5, "PUBREC")]
    assert not restarted.is_new(_Release(9))  # its PUBCOMP was lost
    assert replies.sent == [(5, "PUBREC"), (9, "PUBCOMP")]


# Connections


def test_cut_connections_lose_nothing(broker: Mosquitto, proxy: Proxy) -> None:
    options: dict[str, Any] = {"topics": ["n/#"], "client_id": "reader", "retry": SOON, "receive_maximum": 50}
    payloads: list[int] = []
    register(broker)
    publish(broker, 0, 1000)
    with reading(mqtt(proxy.url, **options)) as items:
        for _ in range(10):
            payloads += items.payloads(60, ack=True)
            proxy.cut()
        while {*payloads} < {*range(1000)}:
            payloads += items.payloads(1, ack=True)
    assert list(dict.fromkeys(payloads)) == list(range(1000))


def test_one_that_has_no_session_any_more_says_so(
    broker: Mosquitto, caplog: pytest.LogCaptureFixture
) -> None:
    publish_one(broker, "n/1", b"1", retain=True)
    with reading(source(broker), {"n": 5}) as items:
        assert items.payloads(1) == [1]
    assert "no session for client_id='reader' any more" in caplog.text


@pytest.mark.parametrize(
    ("password", "reason"), [(PASSWORD, None), ("wrong", "Not authorized"), (None, "Not authorized")]
)
def test_user_and_password(tmp_path: Path, password: str | None, reason: str | None) -> None:
    passwords = tmp_path / "passwords"
    subprocess.run(["mosquitto_passwd", "-c", "-b", passwords, "me", PASSWORD], check=True)
    lines = ["allow_anonymous false", f"password_file {passwords}"]
    with (
        mosquitto(tmp_path / "broker", *lines) as broker,
        reading(source(broker, user="me", password=password)) as items,
    ):
        if reason is None:
            publish_one(broker, "n/1", b"1", retain=True, user="me", password=PASSWORD)
            assert items.payloads(1) == [1]
        else:
            with pytest.raises(ConnectionError, match=f"refuses the connection: {reason}"):
                next(items)


def test_tls_with_a_client_certificate(tmp_path: Path) -> None:
    file, _ = certificate(tmp_path)
    key = file.with_suffix(".key")
    lines = [f"cafile {file}", f"certfile {file}", f"keyfile {key}", "require_certificate true"]
    with mosquitto(tmp_path / "broker", *lines, scheme="mqtts") as broker:
        files = {"ca_file": str(file), "cert_file": str(file), "key_file": str(key)}
        with reading(source(broker, **files)) as items:
            closing = threading.Timer(1, items.source.close)
            closing.start()
            assert list(items) == []
            closing.join()
            assert items.source._session._connection is not None, "it never had a connection"
        with pytest.raises(ConnectionError, match="certificate is refused"):
            next(source(broker).read(None))


def test_a_second_client_with_the_same_id_is_an_error_if_the_broker_says_so(broker: Mosquitto) -> None:
    """mosquitto 2.0 does not; it only closes the older connection."""
    publish_one(broker, "n/1", b"1", retain=True)
    with reading(source(broker)) as items:
        next(items)
        flags = SimpleNamespace(is_disconnect_packet_from_server=True)
        reason = ReasonCode(PacketTypes.DISCONNECT, "Session taken over")
        items.source._connection._on_disconnect(None, None, flags, reason, None)
        with pytest.raises(ConnectionError, match="another client has connected with client_id='reader'"):
            next(items)


def test_a_broker_that_is_not_there_is_tried_again_until_max_retries(broker: Mosquitto) -> None:
    broker.kill()
    with pytest.raises(ConnectionError, match="refused; gave up after max_retries=2"):
        next(source(broker, max_retries=2).read(None))


# Options


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"url": "http://localhost"}, "it must be mqtts://host:port"),
        ({"url": "mqtt://localhost/a"}, "it must be mqtts://host:port"),
        ({"url": "mqtt://me:pw@localhost"}, "use options 'user' and 'password'"),
        ({"url": "mqtt://example.org"}, "Use mqtts, or set allow_plain=true"),
        ({"qos": 3}, "option 'qos' is 3, it must be 0 to 2"),
        ({"receive_maximum": 0}, "option 'receive_maximum' is 0, it must be 1 to 65535"),
        ({"topics": []}, "option 'topics' is \\[\\], it must be one or more topic filters"),
        ({"client_id": None}, "option 'client_id' is missing: with qos=1"),
        ({"cert_file": "a"}, "'cert_file' and 'key_file' go together"),
        ({"ca_file": "a"}, "need a URL that begins with mqtts:"),
        ({"decode": "json"}, "needs a schema"),
    ],
)
def test_options_that_are_not_valid_are_refused(options: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        mqtt(**{"url": "mqtt://localhost", "topics": ["a"], "client_id": "c", **options})


def test_without_its_library_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "paho.mqtt.client", None)
    with pytest.raises(hw.HeadwaterError) as raised:
        mqtt("mqtt://localhost", ["a"], client_id="c")
    assert str(raised.value) == "source 'mqtt' needs paho-mqtt. Fix: pip install headwater[mqtt]."


# In a query


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_nothing_is_lost_while_broker_and_query_are_killed_in_turn(
    broker: Mosquitto, stream: Stream, tmp_path: Path, version: str
) -> None:
    register(broker, version=version)
    query = stream(source(broker, version=version), checkpoint=tmp_path / "checkpoint")
    for turn in range(4):
        publish(broker, 1000 * turn, 1000 * (turn + 1))
        if turn % 2 == 0:
            broker.save()
            broker.kill()
            broker.start()
        else:
            query.kill().restart()
    rows = query.until(lambda rows: {*numbers(rows)} >= {*range(4000)})
    assert {*numbers(rows)} == {*range(4000)}


def test_with_qos_2_each_message_is_one_row_over_kills_of_the_query(
    broker: Mosquitto, stream: Stream, tmp_path: Path
) -> None:
    register(broker, qos=2)
    query = stream(source(broker, qos=2), checkpoint=tmp_path / "checkpoint")
    for turn in range(4):
        publish(broker, 500 * turn, 500 * (turn + 1), qos=2)
        query.kill().restart()
    publish(broker, 2000, 2001, qos=2)
    rows = query.until(lambda rows: 2000 in numbers(rows))
    assert numbers(rows) == list(range(2001))


def test_shared_subscriptions_divide_the_messages_among_feeds(
    broker: Mosquitto, stream: Stream, tmp_path: Path
) -> None:
    feed = source(broker, topics=["$share/g/n/#"])
    query = stream(feed, checkpoint=tmp_path / "checkpoint", concurrency=2)
    query.wait_for(lambda feeds: len(feeds) == 2 and all(feed.state == "running" for feed in feeds))
    wait_until(lambda: "reader-1" in broker.log.read_text(), broker.log.read_text)

    def has_both() -> bool:
        publish(broker, 0, 1)
        rows_by_feed = [feed.rows for feed in query.feeds]
        return all(rows_by_feed)

    wait_until(has_both, lambda: query.feeds)
    publish(broker, 1, 301)
    rows = query.until(lambda rows: {*numbers(rows)} >= {*range(301)})
    assert sorted(n for n in numbers(rows) if n) == list(range(1, 301))


def test_topics_that_are_not_shared_are_refused_with_concurrency(broker: Mosquitto, stream: Stream) -> None:
    failure = stream(source(broker), concurrency=2).failure()
    assert "each must be a shared subscription such as $share/group/sensors/#" in failure


_DRIVER = """
import sys
from pathlib import Path
import headwater as hw
from pyspark.sql import SparkSession
from headwater.sources import mqtt

url, folder = sys.argv[1], Path(sys.argv[2])
spark = hw.session(SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false"))

def save(frame, batch):
    text = "".join(f"{bytes(row.payload).decode()}\\n" for row in frame.select("payload").collect())
    file = folder / "sink" / f"{batch}.new"
    file.write_text(text)
    file.rename(file.with_suffix(".txt"))

writer = hw.stream(spark, mqtt(url, topics=["n/#"], client_id="reader")).writeStream.foreachBatch(save)
writer.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()
"""


def test_nothing_is_lost_while_broker_and_driver_are_killed_with_sigkill(
    broker: Mosquitto, tmp_path: Path, own_spark: dict[str, str]
) -> None:
    register(broker)
    script, sink = tmp_path / "driver.py", tmp_path / "sink"
    script.write_text(_DRIVER)
    sink.mkdir()
    command = [sys.executable, str(script), broker.url, str(tmp_path)]

    def rows() -> set[int]:
        return {int(line) for file in sink.glob("*.txt") for line in file.read_text().split()}

    for turn in range(3):
        with running(command, tmp_path / f"driver-{turn}.log", own_spark) as driver:
            publish(broker, 2000 * turn, 2000 * turn + 1000)
            driver.until("some rows", lambda turn=turn: max(rows(), default=-1) >= 2000 * turn, 120)
            broker.save()
            broker.kill()
            broker.start()
            publish(broker, 2000 * turn + 1000, 2000 * (turn + 1))
            if turn == 2:
                driver.until("all rows", lambda: rows() >= {*range(6000)}, 120)
    assert rows() == {*range(6000)}
