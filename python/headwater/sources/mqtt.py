"""Messages of an MQTT broker, acknowledged once their rows are durable."""

from __future__ import annotations

import json
import logging
import ssl
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

import headwater as hw
from headwater.backoff import Backoff
from headwater.decode import decoder
from headwater.http.address import address_kind

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["mqtt"]

_LOG = logging.getLogger("headwater.sources.mqtt")

_PORTS = {"mqtt": 1883, "mqtts": 8883}
_MAX_QUEUED_BYTES = 64 << 20  # of messages that have arrived and are not yet rows
_MAX_QUEUED_MESSAGES = 100_000  # only messages of QoS 0 can be more than `receive_maximum`
_MIN_SECONDS_PER_BLOCK = 0.02  # a block of messages costs more than a message
_MAX_PAUSE_SECONDS = 60.0
_LASTING_REFUSALS = {129, 130, 132, 133, 134, 135, 138, 140, 149, 156, 157}  # reason codes of MQTT 5
_SESSION_TAKEN_OVER = 142
_SILENT_SECONDS = 30.0
_PACKET_TYPES = {"PUBACK": 0x40, "PUBREC": 0x50, "PUBCOMP": 0x70}
_READ_BYTES = 1 << 16
_COLUMNS = {
    "topic": "STRING",
    "qos": "INT",
    "retain": "BOOLEAN",
    "properties": "MAP<STRING, STRING>",
    "arrived": "TIMESTAMP",
}


class Mqtt(
    hw.Source,
    name="mqtt",
    identity=("url", "client_id", "topics", "qos"),
    schemes=("mqtts", "mqtt"),
):
    """Messages of an MQTT broker, 3.1.1 or 5. A message is acknowledged once its row is durable.

    `topics` are topic filters such as `sensors/+/temperature`, `alarms/#` or, for `concurrency`,
    `$share/group/sensors/#`. With `qos` 1 and 2 the broker keeps a session under `client_id`, with the
    messages that are published while no query runs: for `session_expiry`, and as many as the broker allows.
    With QoS 1 messages may come again after a crash or a restart; with QoS 2 they come once.

    `decode` turns payloads into columns: `binary` and `text` give a column `payload`, `json` with a schema or
    a function `module:name` columns of their own. Columns for topic, QoS, retain flag, properties and time of
    arrival follow with `binary` and `text`, and with `metadata`.

    >>> print(mqtt("mqtts://example.org", topics=["a/#"], client_id="q1", user="me", password="abc"))
    mqtt(url='mqtts://example.org', topics=['a/#'], client_id='q1', user='me', password=***)
    """

    def __init__(
        self,
        url: str,
        topics: list[str],
        qos: int = 1,
        client_id: str | None = None,
        decode: str = "binary",
        schema: str | None = None,
        metadata: bool = False,
        version: Literal["5", "3.1.1"] = "5",
        user: str | None = None,
        password: hw.Secret | None = None,
        ca_file: str | None = None,
        cert_file: str | None = None,
        key_file: str | None = None,
        allow_plain: bool = False,
        session_expiry: timedelta = timedelta(days=1),
        receive_maximum: int = 10_000,
        max_message_bytes: int = 16 << 20,
        keep_alive: timedelta = timedelta(seconds=60),
        retry: timedelta = timedelta(seconds=1),
        max_retries: int | None = None,
        connect_timeout: timedelta = timedelta(seconds=5),
    ) -> None:
        _paho()  # only to report now that it is missing
        self._host, self._port, self._is_encrypted = _parse_url(url, allow_plain)
        for name, value, low, high in (
            ("qos", qos, 0, 2),
            ("receive_maximum", receive_maximum, 1, 65_535),
            ("max_message_bytes", max_message_bytes, 1, 256 << 20),
            ("keep_alive", keep_alive.total_seconds(), 1, 65_535),
            ("max_retries", max_retries or 0, 0, 1 << 62),
        ):
            if not low <= value <= high:
                raise ValueError(f"option '{name}' is {value}, it must be {low} to {high}")
        if connect_timeout <= timedelta(0):
            raise ValueError(f"option 'connect_timeout' is {connect_timeout}, it must be longer than 0")
        if not topics or not all(topics):
            raise ValueError(f"option 'topics' is {topics!r}, it must be one or more topic filters")
        if qos and not client_id:
            raise ValueError(
                f"option 'client_id' is missing: with qos={qos} the broker keeps messages under that name "
                "while no query runs. Choose one that no other client uses, or set qos=0"
            )
        if (cert_file is None) != (key_file is None):
            raise ValueError("options 'cert_file' and 'key_file' go together, and one of them is missing")
        if not self._is_encrypted and (ca_file or cert_file):
            raise ValueError(
                "options 'ca_file', 'cert_file' and 'key_file' need a URL that begins with mqtts:"
            )
        self._url, self._topics, self._qos, self._client_id = url, topics, qos, client_id
        self._is_version_5 = version == "5"
        self._user, self._password = user, password
        self._ca_file, self._cert_file, self._key_file = ca_file, cert_file, key_file
        self._session_expiry, self._receive_maximum = session_expiry, receive_maximum
        self._max_message_bytes = max_message_bytes
        self._keep_alive, self._connect_seconds = keep_alive, connect_timeout.total_seconds()
        self._max_retries = max_retries
        self._backoff = Backoff(retry.total_seconds(), _MAX_PAUSE_SECONDS)
        self._payload_only = decode in ("binary", "text")
        self._extra_columns = _COLUMNS if metadata or self._payload_only else {}
        beside = ", ".join(f"{name} {type}" for name, type in self._extra_columns.items())
        self._decoder = decoder(decode, schema, beside=beside or None)
        self._closed = threading.Event()
        self._connection: _Connection | None = None
        self._session = _Session(None)
        self._is_subscribed = self._has_warned = False

    @property
    def schema(self) -> StructType:
        """The columns, which depend on `decode`, `schema` and `metadata`."""
        from pyspark.sql.types import StructField, StructType

        if not self._payload_only:
            return self._decoder.schema
        payload, *extra = self._decoder.schema.fields
        return StructType([StructField("payload", payload.dataType), *extra])

    @classmethod
    def uri_options(cls, uri: SplitResult, /) -> dict[str, str]:
        """`mqtts://host/sensors/#` sets `url` and a topic filter, and `mqtts://me@host` the user too."""
        options = {"url": uri._replace(netloc=uri.netloc.rpartition("@")[2], path="").geturl()}
        if uri.username:
            options["user"] = unquote(uri.username)
        if topic := unquote(uri.path.removeprefix("/")):
            options["topics"] = json.dumps([topic])
        return options

    def read(self, since: Any) -> Iterator[Any]:
        """Yields all messages that have arrived, and reconnects. Never ends."""
        self._session = _Session(since)
        self._is_subscribed = since is not None
        shard = hw.shard()
        if shard.count > 1 and not all(topic.startswith("$share/") for topic in self._topics):
            raise ValueError(
                f"option 'topics' is {self._topics!r}: with concurrency {shard.count} each must be a shared "
                "subscription such as $share/group/sensors/#, or every feed would get every message"
            )
        client_id = self._client_id
        if client_id and shard.count > 1:
            client_id = f"{client_id}-{shard.index}"
        failures = 0
        while not self._closed.is_set():
            connection = _Connection(self, client_id)
            try:
                self._connection = connection
                self._connect(connection, is_first=since is None and not self._is_subscribed)
                while (messages := connection.take()) is not None:
                    if not messages:
                        self._warn_if_nothing_is_acknowledged()
                        continue
                    failures = 0
                    new = [message for message in messages if self._session.is_new(message)]
                    if new or self._session.has_changed:
                        rows = [message for message in new if not isinstance(message, _Release)]
                        yield hw.At(self._session.cursor(), self._rows(rows) if rows else [])
                failure: Exception = connection.failure
            except _RetryableError as error:
                failure = error
            finally:
                connection.close()
            if self._closed.is_set():
                return
            failures += 1
            if self._max_retries is not None and failures > self._max_retries:
                raise ConnectionError(
                    f"{self._url}: {failure}; gave up after max_retries={self._max_retries}"
                )
            seconds = self._backoff.delay(failures)
            hw.report_connection(False, f"{self._url}: {failure}")
            _LOG.warning("%s: %s; retrying in %.1f s", self._url, failure, seconds)
            self._closed.wait(seconds)

    def ack(self, cursor: Any) -> None:
        self._session.acknowledge(cursor["n"])

    def close(self) -> None:
        self._closed.set()
        if self._connection is not None:
            self._connection.wake()

    def _connect(self, connection: _Connection, *, is_first: bool) -> None:
        session_present = connection.open()
        self._session.use(connection, is_continued=session_present)
        hw.report_connection(True)
        if self._qos and not session_present and not is_first:
            _LOG.warning(
                "%s: the broker has no session for client_id=%r any more: messages that were published since "
                "the last connection are lost",
                self._url,
                self._client_id,
            )
        # A subscription that the session has would make a broker of MQTT 3.1.1 send retained messages again.
        if self._is_version_5 or not (session_present and self._is_subscribed):
            connection.subscribe()
        self._is_subscribed = True

    def _warn_if_nothing_is_acknowledged(self) -> None:
        """The broker sends no more than `receive_maximum` messages then, and nobody would know why."""
        if self._session.lacks_acknowledgement and not self._has_warned:
            self._has_warned = True
            problem = (
                f"{self._url}: messages have arrived and none was acknowledged, so the broker stops sending. "
                "The query needs a checkpointLocation, or durability=memory and ackOn=commit"
            )
            _LOG.warning("%s", problem)
            hw.report_connection(True, problem)

    def _rows(self, messages: list[_Message]) -> Any:
        extra = _metadata(messages) if self._extra_columns else {}
        rows = self._decoder.rows([message.payload for message in messages], **extra)
        if self._payload_only and not isinstance(rows, list):
            return rows.rename_columns(["payload", *self._extra_columns])
        return rows


def _metadata(messages: list[_Message]) -> dict[str, Any]:
    import pyarrow as pa

    properties = [message.properties for message in messages]
    return {
        "topic": [message.topic for message in messages],
        "qos": [message.qos for message in messages],
        "retain": [message.retain for message in messages],
        "properties": properties if any(properties) else None,
        "arrived": pa.array([message.arrived for message in messages], pa.timestamp("us", "UTC")),
    }


_NO_PROPERTIES = {"packetType", "types", "names", "properties"}  # what paho's class itself has


def _properties(properties: Any) -> dict[str, str] | None:
    """User properties by their names, and those of the standard as paho writes them: `ContentType`."""
    if properties is None or len(vars(properties)) == len(_NO_PROPERTIES):
        return None
    values = {name: value for name, value in properties.json().items() if name != "UserProperty"}
    return {name: str(value) for name, value in values.items()} | dict(
        getattr(properties, "UserProperty", [])
    )


def _parse_url(url: str, allow_plain: bool) -> tuple[str, int, bool]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"option 'url' is not a URL: {error}") from None
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            "option 'url' contains a user or password, which logs would show: use options 'user' and "
            "'password'"
        )
    if parts.scheme not in _PORTS or not parts.hostname or parts.path.strip("/") or parts.query or port == 0:
        raise ValueError(f"option 'url' is {url!r}, it must be mqtts://host:port, or mqtt:// where allowed")
    if parts.scheme == "mqtt" and not allow_plain and address_kind(parts.hostname) != "loopback":
        raise ValueError(
            f"option 'url' is {url!r}: plain MQTT can be read and changed in transit. Use mqtts, or set "
            "allow_plain=true"
        )
    return parts.hostname, port or _PORTS[parts.scheme], parts.scheme == "mqtts"


# Which messages are new, and what is confirmed to the broker when


@dataclass(eq=False)
class _Delivery:
    """A message, or the release of one, that the broker waits for a reply to."""

    number: int
    mid: int
    reply: Literal["PUBACK", "PUBREC", "PUBCOMP"]
    content: int  # a hash
    connection: Any
    is_durable: bool = False


class _Message(NamedTuple):
    """What is kept of a message. paho's own object is large, and many of them slow the garbage collector."""

    mid: int
    qos: int
    dup: bool
    retain: bool
    topic: str
    payload: bytes
    properties: dict[str, str] | None
    arrived: int  # microseconds since 1970


@dataclass(frozen=True)
class _Release:
    """PUBREL: the broker knows that a message of QoS 2 was received, and may use its packet id again."""

    mid: int


class _Session:
    """Numbers what arrives, drops what has arrived before, and replies when it is durable.

    QoS 1: the broker sends a message again after a reconnect, until it gets PUBACK. A message that waits for
    its PUBACK here is the same one if packet id and content are the same; it is dropped. After a restart it
    is not known which packet ids the broker has used again, so nothing is dropped.

    QoS 2: PUBREC is sent when the row is durable, and PUBCOMP when it is durable that the packet id is free.
    Until then the packet id is in the cursor, so that a repeat is known even after a restart.

    `is_new` and `cursor` are called in the feed's thread, `acknowledge` in another.
    """

    def __init__(self, since: Any) -> None:
        if since is not None and not (isinstance(since, dict) and type(since.get("n")) is int):
            raise ValueError(f'the cursor is {since!r}, it must be an object such as {{"n": 17}}')
        self._lock = threading.Lock()
        self._number: int = 0 if since is None else since["n"]
        self._waiting: deque[_Delivery] = deque()  # for durability, by number
        self._unacknowledged: dict[int, _Delivery] = {}  # QoS 1, by packet id
        ranges = [] if since is None else since.get("received", [])
        self._received: dict[int, _Delivery | None] = {
            mid: None for first, last in ranges for mid in range(first, last + 1)
        }  # QoS 2 and not yet released, by packet id; None if it was durable at the start
        self._released: dict[int, _Delivery] = {}
        self._replies: list[tuple[int, str]] = []  # to send
        self._connection: Any = None
        self._has_acknowledged = False
        self.has_changed = False
        """Whether the cursor must be saved although there is no new message."""

    def use(self, connection: Any, *, is_continued: bool) -> None:
        """From now on reply on this connection. A session that the broker does not continue is forgotten."""
        with self._lock:
            self._connection = connection
            if not is_continued:
                self._unacknowledged.clear()
                self._received.clear()
                self._released.clear()

    def cursor(self) -> dict[str, Any]:
        self.has_changed = False
        received = _ranges(sorted(self._received))
        return {"n": self._number, "received": received} if received else {"n": self._number}

    def is_new(self, message: _Message | _Release) -> bool:
        if isinstance(message, _Release):
            self._release(message.mid)
            return False
        if message.qos == 0:
            return True
        content = hash((message.topic, message.payload))
        with self._lock:
            if message.qos == 1:
                known = self._unacknowledged.get(message.mid)
                if known is not None and message.dup and known.content == content:
                    self._repeat(known)
                    return False
                self._unacknowledged[message.mid] = self._add(message.mid, "PUBACK", content)
            else:
                if message.dup and message.mid in self._received:
                    self._repeat(self._received[message.mid] or self._durable(message.mid, "PUBREC"))
                    return False
                self._received[message.mid] = self._add(message.mid, "PUBREC", content)
        return True

    @property
    def lacks_acknowledgement(self) -> bool:
        """Whether messages wait to become durable, and none ever has."""
        return bool(self._waiting) and not self._has_acknowledged

    def acknowledge(self, number: int) -> None:
        """Everything up to that number is durable."""
        with self._lock:
            self._has_acknowledged = True
            while self._waiting and self._waiting[0].number <= number:
                delivery = self._waiting.popleft()
                delivery.is_durable = True
                if delivery.connection is self._connection:  # else the broker sends it again, or has lost it
                    self._reply(delivery)
            self._send_replies()

    def _release(self, mid: int) -> None:
        with self._lock:
            if mid in self._received:
                del self._received[mid]
                self._released[mid] = self._add(mid, "PUBCOMP", 0)
                self.has_changed = True
            else:
                self._repeat(self._released.get(mid) or self._durable(mid, "PUBCOMP"))

    def _add(self, mid: int, reply: Literal["PUBACK", "PUBREC", "PUBCOMP"], content: int) -> _Delivery:
        self._number += 1
        delivery = _Delivery(self._number, mid, reply, content, self._connection)
        self._waiting.append(delivery)
        return delivery

    def _durable(self, mid: int, reply: Literal["PUBREC", "PUBCOMP"]) -> _Delivery:
        return _Delivery(0, mid, reply, 0, self._connection, is_durable=True)

    def _repeat(self, delivery: _Delivery) -> None:
        delivery.connection = self._connection
        if delivery.is_durable:
            self._reply(delivery)
            self._send_replies()

    def _reply(self, delivery: _Delivery) -> None:
        if delivery.reply == "PUBACK" and self._unacknowledged.get(delivery.mid) is delivery:
            del self._unacknowledged[delivery.mid]
        if delivery.reply == "PUBCOMP":
            self._released.pop(delivery.mid, None)
        self._replies.append((delivery.mid, delivery.reply))

    def _send_replies(self) -> None:
        if self._replies:
            self._connection.reply(self._replies)
            self._replies = []


def _ranges(numbers: Iterable[int]) -> list[list[int]]:
    """First and last of each run of numbers in a row.

    >>> _ranges([1, 2, 3, 7])
    [[1, 3], [7, 7]]
    """
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ranges


# Connections


class _RetryableError(Exception):
    """A connection failed and another one may succeed."""


class _Connection:
    """One connection to the broker, in a thread of paho's.

    Messages wait in a queue until `take`. The broker sends at most `receive_maximum` that are not
    acknowledged. If too many bytes wait, or too many messages of QoS 0, no more are read from the socket.
    """

    def __init__(self, source: Mqtt, client_id: str | None) -> None:
        self.failure = _RetryableError("the connection was closed")
        self._source = source
        self._changed = threading.Condition()
        self._queue: deque[_Message | _Release] = deque()
        self._bytes_in = self._bytes_out = 0  # each is changed by one thread only
        self._is_announced = False  # that the queue is not empty
        self._taken_at = 0.0
        self._session_present: bool | None = None
        self._refused: Exception | None = None
        self._has_ended = False
        self._client = self._make_client(client_id)

    def open(self) -> bool:
        """Connects, and returns whether the broker has continued the session."""
        source, client = self._source, self._client
        if source._password is not None or source._user is not None:
            client.username_pw_set(source._user, source._password.reveal() if source._password else None)
        arguments: dict[str, Any] = {"keepalive": int(source._keep_alive.total_seconds())}
        if source._is_version_5:
            arguments |= {"clean_start": source._qos == 0, "properties": self._connect_properties()}
        try:
            client.connect(source._host, source._port, **arguments)
        except ssl.SSLCertVerificationError as error:
            raise ConnectionError(
                f"{source._url}: its certificate is refused: {error.verify_message}"
            ) from None
        except (OSError, ValueError) as error:
            raise _RetryableError(getattr(error, "strerror", None) or str(error)) from None
        client.loop_start()
        deadline = time.monotonic() + source._connect_seconds
        with self._changed:
            while self._session_present is None:
                if self._refused is not None:
                    raise self._refused
                if self._has_ended or source._closed.is_set():
                    raise self.failure
                if not self._changed.wait(deadline - time.monotonic()) and time.monotonic() > deadline:
                    raise _RetryableError("the broker did not answer in time")
            return self._session_present

    def subscribe(self) -> None:
        from paho.mqtt.subscribeoptions import SubscribeOptions

        qos, topics = self._source._qos, self._source._topics
        if self._source._is_version_5:
            # Retained messages only if the subscription is new.
            once = SubscribeOptions.RETAIN_SEND_IF_NEW_SUB
            self._client.subscribe([(topic, SubscribeOptions(qos, retainHandling=once)) for topic in topics])
        else:
            self._client.subscribe([(topic, qos) for topic in topics])

    def take(self) -> list[_Message | _Release] | None:
        """Waits for messages and releases: empty if none come for long, None at the end of the connection."""
        closed = self._source._closed
        pause = self._taken_at + _MIN_SECONDS_PER_BLOCK - time.monotonic()
        if pause > 0:
            closed.wait(pause)
        with self._changed:
            has_changed = self._changed.wait_for(
                lambda: self._queue or self._has_ended or self._refused is not None or closed.is_set(),
                _SILENT_SECONDS,
            )
            if self._refused is not None:
                raise self._refused
            if closed.is_set() or (has_changed and not self._queue):
                return None
            messages = [self._queue.popleft() for _ in range(len(self._queue))]
            self._bytes_out += sum(map(_size, messages))
            self._is_announced = False
            self._changed.notify_all()
        self._taken_at = time.monotonic()
        return messages

    def reply(self, replies: list[tuple[int, str]]) -> None:
        """Returns at once; nothing happens if the connection has ended."""
        packets = [bytes((_PACKET_TYPES[reply], 2, mid >> 8, mid & 0xFF)) for mid, reply in replies]
        self._client.send_packets(b"".join(packets))

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()
        self._client.disconnect()
        self._client.loop_stop()

    def _make_client(self, client_id: str | None) -> Any:
        source = self._source
        paho = _paho()
        client = _client_class()(
            paho.CallbackAPIVersion.VERSION2,
            client_id=client_id or "",
            protocol=paho.MQTTv5 if source._is_version_5 else paho.MQTTv311,
            clean_session=None if source._is_version_5 else source._qos == 0,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        client.connect_timeout = source._connect_seconds
        if source._is_encrypted:
            context = ssl.create_default_context(cafile=source._ca_file)
            if source._cert_file is not None:
                context.load_cert_chain(source._cert_file, source._key_file)
            client.tls_set_context(context)
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_subscribe = self._on_subscribe
        client.on_message = lambda client, _, message: self._on_message(message)
        client.on_release = lambda mid: self._put(_Release(mid))
        client.on_error = self._on_error
        return client

    def _connect_properties(self) -> Any:
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        source = self._source
        properties: Any = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        if source._qos:
            properties.SessionExpiryInterval = min(int(source._session_expiry.total_seconds()), 0xFFFFFFFF)
        properties.ReceiveMaximum = source._receive_maximum
        properties.MaximumPacketSize = source._max_message_bytes
        return properties

    # In paho's thread

    def _on_connect(self, client: Any, _: Any, flags: Any, reason: Any, properties: Any) -> None:
        with self._changed:
            if not reason.is_failure:
                self._session_present = bool(flags.session_present)
            elif reason.value in _LASTING_REFUSALS:
                self._refused = ConnectionError(
                    f"{self._source._url}: the broker refuses the connection: {reason}"
                )
            else:
                self.failure = _RetryableError(f"the broker refuses the connection: {reason}")
            self._changed.notify_all()

    def _on_disconnect(self, client: Any, _: Any, flags: Any, reason: Any, properties: Any) -> None:
        with self._changed:
            if flags.is_disconnect_packet_from_server and reason.value == _SESSION_TAKEN_OVER:
                self._refused = ConnectionError(
                    f"{self._source._url}: another client has connected with "
                    f"client_id={self._source._client_id!r}. Each query needs a client_id of its own"
                )
            elif flags.is_disconnect_packet_from_server:
                self.failure = _RetryableError(f"the broker ended the connection: {reason}")
            elif self._session_present is not None:
                self.failure = _RetryableError("the connection was lost")
            self._has_ended = True
            self._changed.notify_all()

    def _on_subscribe(self, client: Any, _: Any, mid: int, reasons: list[Any], properties: Any) -> None:
        source = self._source
        for topic, reason in zip(source._topics, reasons, strict=False):
            problem = ""
            if reason.is_failure:
                problem = f"the broker refuses the subscription to {topic!r}: {reason}"
            elif reason.value < source._qos:
                problem = (
                    f"the broker grants QoS {reason.value} for {topic!r}, and option 'qos' is {source._qos}. "
                    f"Set qos={reason.value}, if that is enough"
                )
            if problem:
                with self._changed:
                    self._refused = ConnectionError(f"{source._url}: {problem}")
                    self._changed.notify_all()

    def _on_error(self, error: Exception) -> None:
        """What the broker sent is not MQTT, or its sizes are wrong."""
        with self._changed:
            self.failure = _RetryableError(f"{type(error).__name__} while reading: {error}")
            self._has_ended = True
            self._changed.notify_all()

    def _on_message(self, message: Any) -> None:
        self._put(
            _Message(
                message.mid,
                message.qos,
                message.dup,
                message.retain,
                message.topic,
                message.payload,
                _properties(message.properties),
                time.time_ns() // 1000,
            )
        )

    def _put(self, message: _Message | _Release) -> None:
        """Takes the lock only if somebody has to be told, or to wait."""
        self._bytes_in += _size(message)
        self._queue.append(message)
        if not self._is_announced:
            with self._changed:
                self._is_announced = True
                self._changed.notify_all()
        if self._is_full():
            with self._changed:
                self._changed.wait_for(lambda: self._has_ended or not self._is_full())

    def _is_full(self) -> bool:
        queued_bytes = self._bytes_in - self._bytes_out
        return queued_bytes >= _MAX_QUEUED_BYTES or len(self._queue) >= _MAX_QUEUED_MESSAGES


def _size(message: _Message | _Release) -> int:
    return 0 if isinstance(message, _Release) else len(message.payload)


def _client_class() -> Any:
    paho = _paho()

    class Client(paho.Client):  # type: ignore[misc, name-defined]
        """paho's client, but messages of QoS 2 are passed on when they arrive, and confirmed on request.

        paho sends PUBREC at once, after which the broker forgets the message, and passes the message on when
        it is released. A driver that dies in between would lose it. Also, this one asks the operating system
        for many packets at a time, both ways; paho needs six calls for each.
        """

        _unread, _position = b"", 0

        def loop_forever(self, *args: Any, **options: Any) -> Any:
            try:
                return super().loop_forever(*args, **options)
            except Exception as error:  # else the thread would end without a word
                self.on_error(error)
                return paho.MQTT_ERR_UNKNOWN

        def send_packets(self, packets: bytes) -> None:
            self._packet_queue(paho.PUBACK, packets, 0, 0)

        def loop_read(self, max_packets: int = 1) -> Any:
            while True:
                result = super().loop_read(max_packets)
                if result != paho.MQTT_ERR_SUCCESS or self._position == len(self._unread):
                    return result

        def _sock_recv(self, bufsize: int) -> bytes:
            if self._position == len(self._unread):
                self._unread, self._position = super()._sock_recv(_READ_BYTES), 0
            data = self._unread[self._position : self._position + bufsize]
            self._position += len(data)
            return data

        def _send_pubrec(self, mid: int) -> Any:
            return paho.MQTT_ERR_SUCCESS

        def _handle_publish(self) -> Any:
            result = super()._handle_publish()
            while self._in_messages:
                self._handle_on_message(self._in_messages.popitem()[1])
            return result

        def _handle_pubrel(self) -> Any:
            packet = self._in_packet["packet"]
            self.on_release(int.from_bytes(packet[:2], "big"))
            return super()._handle_pubrel()

    return Client


def _paho() -> Any:
    try:
        import paho.mqtt.client
    except ImportError:
        raise hw.HeadwaterError("source 'mqtt' needs paho-mqtt", "pip install headwater[mqtt]") from None
    return paho.mqtt.client


mqtt = Mqtt
