"""The host: answers the requests of Spark's JVM, and runs and stops feeds and watches of partitions."""

from __future__ import annotations

import atexit
import base64
import json
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from headwater import registry
from headwater.definition import is_resumable, schema_of_source
from headwater.errors import explain
from headwater.options import OptionError
from headwater.registry import identity_of, request_options
from headwater.rows.converter import Converter
from headwater.runtime.batching import BatchEncoder, BatchSender, ItemBuffer
from headwater.runtime.feed import Feed
from headwater.runtime.partitions import PartitionWatch, WatchFailed
from headwater.runtime.protocol import (
    Address,
    ControlConnection,
    FeedRequest,
    Reply,
    WatchRequest,
    replying_to_errors,
)
from headwater.runtime.tasks import reader
from headwater.schema import arrow_schema
from headwater.source import PartitionedSource, Source

__all__ = ["HandOver", "Host", "after", "open_watch", "positions"]

HandOver = Callable[[str, Any], None]
"""Gives the JVM what tasks run, by the name of the feed."""


def open_watch(order: WatchRequest, watch: PartitionWatch, hand_over: HandOver, answer: Reply) -> None:
    """Hand over what reads the rows, and begin to watch."""
    try:
        source = order.order.make()
        arrow_schema(schema_of_source(source))  # says which column has no way to travel
        hand_over(order.order.feed, reader(source, order))
        watch.start()
    except BaseException as error:
        watch.stop()
        answer({"error": {"message": explain(error, order.order.secrets(), "")}})
    else:
        answer({"answer": {}})


def positions(watch: PartitionWatch | None, version: int, answer: Reply) -> None:
    """Answered when there is a newer version; so this returns at once."""
    if watch is None:
        answer({"answer": {"version": version, "stopped": True}})
    else:
        watch.positions.when_newer(version, lambda known: answer({"answer": known}))


def after(watch: PartitionWatch | None, wanted: dict[str, list[int]], answer: Reply) -> None:
    try:
        if watch is None:
            raise WatchFailed("the watch is over")
        ends = watch.after({text: (start, rows) for text, (start, rows) in wanted.items()})
    except WatchFailed as failure:
        answer({"error": {"message": str(failure)}})
    else:
        answer({"answer": {"ends": ends}})


class Host:
    """One for each JVM that this process has to do with; `hand_over` gives that what its tasks run."""

    def __init__(self, address: Address, hand_over: HandOver) -> None:
        self._address = address
        self._hand_over = hand_over
        self._lock = threading.Lock()
        self._feeds: dict[str, Feed | PartitionWatch] = {}
        self._abandoned: list[Feed | PartitionWatch] = []
        self._control = ControlConnection(address, self._asked, self._gone)
        self._process = os.getpid()
        atexit.register(self._let_go)

    @property
    def is_alive(self) -> bool:
        return self._control.is_alive

    @property
    def feeds(self) -> list[Feed | PartitionWatch]:
        """Those that run, and those that were to end and do not."""
        with self._lock:
            self._abandoned = [feed for feed in self._abandoned if feed.is_alive]
            return [*self._feeds.values(), *self._abandoned]

    def _asked(self, what: str, question: dict[str, Any], answer: Reply) -> None:
        """An order to open a feed is taken at once, so that the order to stop it cannot come first."""
        if what == "open":
            self._open(FeedRequest.read(question), answer)
        elif what == "durable":
            self._durable(question, answer)
        elif what == "watch":
            self._watch(WatchRequest.read(question), answer)
        elif what == "positions":
            positions(self._watch_of(question), question["version"], answer)
        else:
            work = {"load": self._load, "stop": self._stop, "after": self._after}[what]
            _in_thread(what, partial(work, question, answer), answer)

    def _load(self, question: dict[str, Any], answer: Reply) -> None:
        try:
            answer({"answer": _described(question)})
        except OptionError as error:
            answer({"error": {"kind": "option", "message": str(error)}})
        except Exception as error:
            name = question["source"].partition("@")[0]
            secrets = registry.secrets_in(question["source"], question["options"])
            told = explain(error, secrets, remedy="A source is made when its stream is loaded.")
            answer({"error": {"kind": "option", "message": f"Source '{name}' cannot be made: {told}"}})

    def _open(self, order: FeedRequest, answer: Reply) -> None:
        def opened(wrong: str | None) -> None:
            answer({"answer": {}} if wrong is None else {"error": {"message": wrong}})

        def open_outlet(source: Any, failed: Callable[[BaseException], None]) -> BatchSender:
            schema = schema_of_source(source)
            outlet = BatchSender(
                self._address.connect(f"feed {order.feed}"),
                BatchEncoder(Converter(schema, order.on_bad_row)),
                ItemBuffer.of(source, schema, order.batch_rows),
                shard=order.shard.index,
                linger=order.linger,
                failed=failed,
            )
            outlet.cursor = order.since
            return outlet

        feed = Feed(order, open_outlet, opened)
        with self._lock:
            self._feeds[order.feed] = feed
        feed.start()

    def _watch(self, order: WatchRequest, answer: Reply) -> None:
        watch = PartitionWatch(order)
        with self._lock:
            self._feeds[order.order.feed] = watch
        _in_thread("watch", partial(open_watch, order, watch, self._hand_over, answer), answer)

    def _after(self, question: dict[str, Any], answer: Reply) -> None:
        after(self._watch_of(question), question["wanted"], answer)

    def _watch_of(self, question: dict[str, Any]) -> PartitionWatch | None:
        with self._lock:
            found = self._feeds.get(question["feed"])
        return found if isinstance(found, PartitionWatch) else None

    def _durable(self, question: dict[str, Any], answer: Reply) -> None:
        with self._lock:
            feed = self._feeds.get(question["feed"])
        if isinstance(feed, Feed):
            feed.acks.add(json.loads(question["cursor"]))
        answer({"answer": {}})

    def _stop(self, question: dict[str, Any], answer: Reply) -> None:
        answer({"answer": {"state": self._end(question["feed"])}})

    def _end(self, name: str) -> str:
        with self._lock:
            feed = self._feeds.get(name)
        state = "stopped" if feed is None else feed.stop()
        with self._lock:
            self._feeds.pop(name, None)
            if feed is not None and state == "abandoned":
                self._abandoned.append(feed)
        return state

    def _gone(self) -> None:
        """The JVM is gone, and nobody is left to stop its feeds."""
        with self._lock:
            names = list(self._feeds)
        with suppress(RuntimeError):  # this process ends too, and takes no new threads
            for name in names:
                threading.Thread(target=self._end, args=(name,), name="headwater-stop", daemon=True).start()

    def _let_go(self) -> None:
        """This process is about to end: let go of what waits for it. A fork of it has no part in that."""
        with self._lock:
            feeds = list(self._feeds.values()) if os.getpid() == self._process else []
        for feed in feeds:
            if isinstance(feed, Feed) and feed.outlet is not None:
                feed.outlet.close()


def _in_thread(what: str, work: Callable[[], None], answer: Reply) -> None:
    """What may take long: the next question is taken meanwhile."""
    guarded = partial(replying_to_errors, work, answer)
    threading.Thread(target=guarded, name=f"headwater-{what}", daemon=True).start()


def _described(question: dict[str, Any]) -> dict[str, Any]:
    source = registry.find(question["source"], request_options(question))
    schema, cls = schema_of_source(source), type(source)
    return {
        "name": cls._name,
        "schema": schema.json(),
        "arrowSchema": base64.b64encode(arrow_schema(schema).serialize()).decode("ascii"),
        "description": repr(source),
        "resumable": is_resumable(cls),
        "ack": cls.ack is not Source.ack,
        "identity": identity_of(source),
        "partitioned": issubclass(cls, PartitionedSource),
        "hasAt": issubclass(cls, PartitionedSource) and cls._defines_method("at"),
        "hasAfter": issubclass(cls, PartitionedSource) and cls._defines_method("after"),
    }
