"""The host: handles the requests of one JVM, and runs the feeds and watches that they ask for."""

from __future__ import annotations

import atexit
import base64
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from headwater.definition import is_resumable, schema_of_source
from headwater.errors import explain
from headwater.options import OptionError
from headwater.registry import identity_of, literal_secrets
from headwater.rows.kept import converter, schema_with_bad_rows
from headwater.runtime.batching import BatchEncoder, BatchSender, ItemBuffer
from headwater.runtime.feed import Feed
from headwater.runtime.partitions import HOOKS, PartitionWatch, WatchFailed
from headwater.runtime.protocol import (
    DEFAULT_STOP_SECONDS,
    AcknowledgeRequest,
    Address,
    AfterRequest,
    CommittedRequest,
    ControlConnection,
    FeedRequest,
    LoadRequest,
    PositionsRequest,
    Reply,
    Request,
    RowRequest,
    StatusRequest,
    StopRequest,
    WatchRequest,
)
from headwater.runtime.row_sink import RowSink
from headwater.runtime.tasks import WorkerPython, reader_message, task_function
from headwater.runtime.threads import Deadline
from headwater.schema import arrow_schema
from headwater.source import PartitionedSource, Source

__all__ = ["Host"]

_log = logging.getLogger("headwater.feed")


class Host:
    """Runs feeds and watches for one JVM, as long as that or this process lives.

    Requests come in the thread of the control connection. Those that may take long are handled in a thread of
    their own, so that the next request is not held up.
    """

    def __init__(self, address: Address, worker_python: Callable[[], WorkerPython]) -> None:
        """`worker_python` tells with which Python Spark's workers read partitions."""
        self._address = address
        self._worker_python = worker_python
        self._lock = threading.Lock()
        self._feeds: dict[str, Feed | PartitionWatch] = {}
        self._abandoned: list[Feed | PartitionWatch] = []
        self._without_acks: set[str] = set()
        self._sinks: dict[str, RowSink] = {}
        self._process = os.getpid()
        self._handlers: dict[type, Callable[[Any, Reply], None]] = {
            LoadRequest: self._in_thread(self._load),
            FeedRequest: self._open,
            AcknowledgeRequest: self._acknowledge,
            StatusRequest: self._status,
            WatchRequest: self._watch,
            PositionsRequest: self._positions,
            AfterRequest: self._in_thread(self._after),
            CommittedRequest: self._committed,
            RowRequest: self._row,
            StopRequest: self._in_thread(self._stop),
        }
        self._control = ControlConnection(address, self._handle, self._stop_all)
        atexit.register(self._disconnect_all)

    @property
    def is_alive(self) -> bool:
        return self._control.is_alive

    @property
    def feeds(self) -> list[Feed | PartitionWatch]:
        """Those that run, and those that were stopped but whose threads have not ended."""
        with self._lock:
            self._abandoned = [feed for feed in self._abandoned if feed.is_alive]
            return [*self._feeds.values(), *self._abandoned]

    def drop_acks(self, query: str) -> None:
        """From now on acknowledge nothing to the sources of a query: a test treats it as dead."""
        with self._lock:
            self._without_acks.add(query)

    def add_sink(self, function: Callable[[dict[str, Any]], object]) -> str:
        """Name a function that queries hand rows to."""
        with self._lock:
            name = str(len(self._sinks))
            self._sinks[name] = RowSink(function)
        return name

    def _handle(self, request: Request, reply: Reply) -> None:
        self._handlers[type(request)](request, reply)

    @staticmethod
    def _in_thread(handler: Callable[[Any, Reply], None]) -> Callable[[Any, Reply], None]:
        name = f"headwater-{handler.__name__.strip('_')}"

        def handle(request: Any, reply: Reply) -> None:
            work = partial(reply.fail_on_error, partial(handler, request, reply))
            threading.Thread(target=work, name=name, daemon=True).start()

        return handle

    def _load(self, request: LoadRequest, reply: Reply) -> None:
        try:
            with self._temporary_source(request) as source:
                description = _describe(source, request.on_bad_row)
            reply.send(description)
        except OptionError as error:
            reply.fail(str(error), kind="option")
        except Exception as error:
            remedy = "A source is created when its stream is loaded."
            message = explain(error, request.secrets(), remedy)
            reply.fail(f"Source '{request.name}' cannot be created: {message}", kind="option")

    @staticmethod
    @contextmanager
    def _temporary_source(request: LoadRequest | FeedRequest) -> Iterator[Any]:
        """An instance that is never read, closed afterwards. An error of its `close` loses nothing."""
        source = request.make_source()
        try:
            yield source
        finally:
            try:
                source.close()
            except Exception as error:
                _log.debug("[%s] close failed: %s", request.name, explain(error, request.secrets(), ""))

    def _open(self, request: FeedRequest, reply: Reply) -> None:
        """In the control connection's thread, so that a request to stop the feed cannot overtake this one."""

        def on_open(error: str | None) -> None:
            if error is None:
                reply.send({})
            else:
                reply.fail(error)

        def open_sender(source: Any, on_error: Callable[[BaseException], None]) -> BatchSender:
            schema = schema_of_source(source)
            sender = BatchSender(
                self._address.connect(f"feed {request.feed}"),
                BatchEncoder(converter(schema, request.on_bad_row)),
                ItemBuffer.for_source(source, schema, request.batch_rows),
                shard=request.shard.index,
                linger=request.linger,
                on_error=on_error,
            )
            sender.cursor = request.since
            return sender

        feed = Feed(request, open_sender, on_open)
        with self._lock:
            self._feeds[request.feed] = feed
        feed.start()

    def _acknowledge(self, request: AcknowledgeRequest, reply: Reply) -> None:
        feed = self._find_feed(request.feed)
        if feed is not None and feed.request.query not in self._without_acks:
            feed.acknowledge(request.cursor)
        reply.send({})

    def _status(self, request: StatusRequest, reply: Reply) -> None:
        feed = self._find_feed(request.feed)
        if feed is None:
            reply.send({"version": request.version, "stopped": True})
        else:
            feed.status.when_newer(request.version, reply.send)

    def _find_feed(self, name: str) -> Feed | None:
        with self._lock:
            feed = self._feeds.get(name)
        return feed if isinstance(feed, Feed) else None

    def _watch(self, request: WatchRequest, reply: Reply) -> None:
        """The watch is entered in the control connection's thread, as a feed is; then it may take long."""
        watch = PartitionWatch(request)
        with self._lock:
            self._feeds[request.feed] = watch
        self._in_thread(self._start_watch)(watch, reply)

    def _start_watch(self, watch: PartitionWatch, reply: Reply) -> None:
        request = watch.request
        try:
            with self._temporary_source(request) as source:
                arrow_schema(schema_of_source(source))  # raises for a column type that is not supported
                reader = reader_message(task_function(source, request), self._worker_python())
                hooks = {name for name in HOOKS if source._defines_method(name)}
            watch.start(hooks)
        except BaseException as error:
            watch.stop(Deadline.after(DEFAULT_STOP_SECONDS))
            reply.fail(explain(error, request.secrets(), ""))
        else:
            reply.send({"reader": reader, "committed": "committed" in hooks})

    def _positions(self, request: PositionsRequest, reply: Reply) -> None:
        watch = self._find_watch(request.feed)
        if watch is None:
            reply.send({"version": request.version, "stopped": True})
        else:
            watch.positions.when_newer(request.version, reply.send)

    def _after(self, request: AfterRequest, reply: Reply) -> None:
        watch = self._find_watch(request.feed)
        try:
            if watch is None:
                raise WatchFailed("the watch is over")
            ends = watch.after(request.limits)
        except WatchFailed as failure:
            reply.fail(str(failure))
        else:
            reply.send({"ends": ends})

    def _committed(self, request: CommittedRequest, reply: Reply) -> None:
        watch = self._find_watch(request.feed)
        if watch is not None:
            watch.committed(request.offsets)
        reply.send({})

    def _row(self, request: RowRequest, reply: Reply) -> None:
        with self._lock:
            sink = self._sinks[request.sink]
        sink.add(request.row, reply)

    def _find_watch(self, feed: str) -> PartitionWatch | None:
        with self._lock:
            watch = self._feeds.get(feed)
        return watch if isinstance(watch, PartitionWatch) else None

    def _stop(self, request: StopRequest, reply: Reply) -> None:
        reply.send({"state": self._stop_feed(request.feed, request.deadline)})

    def _stop_feed(self, name: str, deadline: Deadline) -> str:
        with self._lock:
            feed = self._feeds.get(name)
        try:
            state = "stopped" if feed is None else feed.stop(deadline)
        except BaseException as error:  # nobody else would stop it
            _log.error("stopping feed %s failed, and is tried once more: %r", name, error)
            state = "stopped" if feed is None else feed.stop(deadline)
        with self._lock:
            self._feeds.pop(name, None)
            if feed is not None and state == "abandoned":
                self._abandoned.append(feed)
        return state

    def _stop_all(self) -> None:
        """The JVM is gone, so nobody else will stop its feeds."""
        deadline = Deadline.after(DEFAULT_STOP_SECONDS)
        with self._lock:
            names = list(self._feeds)
        with suppress(RuntimeError):  # no thread can be started while this process ends
            for name in names:
                stop = partial(self._stop_feed, name, deadline)
                threading.Thread(target=stop, name="headwater-stop", daemon=True).start()

    def _disconnect_all(self) -> None:
        """At the end of this process: unblock feeds, and the JVM that waits for them. Not in a fork of it."""
        if os.getpid() == self._process:
            with self._lock:
                feeds = list(self._feeds.values())
            if feeds and getattr(sys, "last_type", None) is KeyboardInterrupt:
                _log.warning("interrupted: stopping %d feed%s", len(feeds), "s" if len(feeds) > 1 else "")
            for feed in feeds:
                if isinstance(feed, Feed):
                    feed.disconnect()


def _describe(source: Any, on_bad_row: str) -> dict[str, Any]:
    cls = type(source)
    try:
        schema = schema_with_bad_rows(schema_of_source(source), on_bad_row)
    except ValueError as error:
        raise OptionError(f"source '{cls._name}': {error}") from None
    return {
        "name": cls._name,
        "schema": schema.json(),
        "arrowSchema": base64.b64encode(arrow_schema(schema).serialize()).decode("ascii"),
        "description": repr(source),
        "resumable": is_resumable(cls),
        "ack": cls.ack is not Source.ack,
        "identity": identity_of(source),
        "literalSecrets": literal_secrets(source),
        "partitioned": issubclass(cls, PartitionedSource),
        "hasAt": issubclass(cls, PartitionedSource) and cls._defines_method("at"),
        "hasAfter": issubclass(cls, PartitionedSource) and cls._defines_method("after"),
    }
