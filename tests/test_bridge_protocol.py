"""The messages between Python and the JVM, deadlines and back-off.

Imports private modules: the other side of the protocol is in Scala, so its field names must not change.
"""

from __future__ import annotations

import math
import socket
import threading
import time
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from headwater.backoff import RESTARTS, Backoff
from headwater.runtime.protocol import (
    REQUESTS,
    AcknowledgeRequest,
    Address,
    AfterRequest,
    CommittedRequest,
    FeedRequest,
    LoadRequest,
    PositionsRequest,
    Reply,
    RowRequest,
    StartFrom,
    StatusRequest,
    StopRequest,
    WatchRequest,
    parse_request,
)
from headwater.runtime.threads import AuthorThread, Deadline, FeedStopped, join_or_interrupt
from headwater.source import Shard

FEED = {
    "feed": "7.1",
    "source": "letters@0a1b",
    "options": {"length": "8"},
    "shard": 1,
    "shards": 3,
    "query": "an-id",
    "queryName": "words",
    "onError": "restart",
    "maxRestarts": 2,
    "onBadRow": "drop",
    "lingerMs": 50,
    "batchRows": 100,
    "since": '{"a":1}',
}
WATCH = {
    **FEED,
    "failOnDataLoss": False,
    "callTimeoutMs": 1500,
    "startFrom": {"kind": "at", "time": "2026-01-01T00:00:00Z"},
    "known": ["a"],
}


def parsed(kind: str, **fields: Any) -> Any:
    return parse_request({"id": 1, "ask": kind, **fields})


def test_every_kind_of_request_is_parsed_from_its_fields() -> None:
    feed: dict[str, Any] = {
        "feed": "7.1",
        "source": "letters@0a1b",
        "options": {"length": "8"},
        "shard": Shard(1, 3),
        "query": "words",
        "on_error": "restart",
        "max_restarts": 2,
        "on_bad_row": "drop",
        "linger": 0.05,
        "batch_rows": 100,
        "since": {"a": 1},
    }
    start_from = StartFrom("at", time=datetime(2026, 1, 1, tzinfo=timezone.utc))
    requests = {
        "load": (parsed("load", source="letters", options={}), LoadRequest("letters", {}, None)),
        "open": (parsed("open", **FEED), FeedRequest(**feed)),
        "acknowledge": (parsed("acknowledge", feed="7.1", cursor="[3]"), AcknowledgeRequest("7.1", [3])),
        "status": (parsed("status", feed="7.1", version=2), StatusRequest("7.1", 2)),
        "committed": (parsed("committed", feed="7", offsets={"a": 5}), CommittedRequest("7", {"a": 5})),
        "watch": (
            parsed("watch", **WATCH),
            WatchRequest(
                **feed,
                fail_on_data_loss=False,
                call_timeout=1.5,
                start_from=start_from,
                known=frozenset({"a"}),
            ),
        ),
        "row": (parsed("row", sink="0", row='{"n": 1}'), RowRequest("0", '{"n": 1}')),
        "positions": (parsed("positions", feed="7", version=4), PositionsRequest("7", 4)),
        "after": (parsed("after", feed="7", wanted={"a": [5, 10]}), AfterRequest("7", {"a": (5, 10)})),
    }
    for request, expected in requests.values():
        assert request == expected
        assert type(request) is type(expected)
    assert set(REQUESTS) == {*requests, "stop"}


def test_optional_fields_have_defaults() -> None:
    needed = {"feed": "7", "source": "letters", "options": {}, "onError": "fail", "onBadRow": "fail"}
    request = parsed("open", **needed, batchRows=1)
    assert (request.shard, request.query, request.linger) == (Shard(0, 1), "none", 0.0)
    assert (request.max_restarts, request.since, request.name) == (None, None, "letters")
    assert parsed("open", **FEED).name == "letters", "without the token of a value"


def test_an_unknown_request_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(
        ValueError, match=r"unknown request 'halt'; known are load, open, acknowledge, status"
    ):
        parsed("halt")


@pytest.mark.parametrize(
    ("on_error", "max_restarts", "expected"),
    [
        ("fail", None, [False, False, False]),
        ("end", None, [False, False, False]),
        ("restart", None, [True, True, True]),
        ("restart", 2, [True, True, False]),
        ("restart", 0, [False, False, False]),
    ],
)
def test_restarts_are_allowed_up_to_their_limit(
    on_error: str, max_restarts: int | None, expected: list[bool]
) -> None:
    request = parsed("open", **{**FEED, "onError": on_error, "maxRestarts": max_restarts})
    assert [request.allows_restart(failures) for failures in (1, 2, 3)] == expected


def test_a_stop_has_to_end_before_the_jvm_stops_waiting() -> None:
    before = time.monotonic()
    deadline = parsed("stop", feed="7", timeoutMs=60_000).deadline
    assert before + 50 < deadline.time < time.monotonic() + 60
    default = parsed("stop", feed="7")
    assert isinstance(default, StopRequest)
    assert 2 < default.deadline.remaining <= 3


def test_a_reply_is_an_answer_or_an_error() -> None:
    messages: list[dict[str, Any]] = []
    reply = Reply(messages.append)
    reply.send({"state": "stopped"})
    reply.fail("no")
    reply.fail("wrong", kind="option")
    reply.fail_on_error(lambda: parse_request({"ask": "halt"}))  # type: ignore[arg-type, return-value]
    assert messages[:3] == [
        {"answer": {"state": "stopped"}},
        {"error": {"message": "no"}},
        {"error": {"kind": "option", "message": "wrong"}},
    ]
    assert messages[3]["error"]["message"].startswith("ValueError: unknown request 'halt'")


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no Unix domain sockets")
@pytest.mark.parametrize("response", [b"ok\n", b"no\n", b""])
def test_the_handshake_sends_secret_and_role_and_expects_ok(tmp_path: Path, response: bytes) -> None:
    received: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()

        def accept() -> None:
            connection, _ = server.accept()
            with connection:
                received.append(connection.makefile("rb").readline())
                connection.sendall(response)

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        address = Address(f"unix:{tmp_path / 's'}", "hush")
        if response == b"ok\n":
            address.connect("feed 7.0").close()
        else:
            with pytest.raises((ConnectionError, EOFError)):
                address.connect("feed 7.0")
        accepting.join(10)
    assert received == [b"headwater 1 hush feed 7.0\n"]
    assert "hush" not in repr(address)


def test_a_portion_of_a_deadline_is_a_share_of_the_remaining_time() -> None:
    deadline = Deadline.after(60)
    assert 19 < deadline.portion(1 / 3).remaining <= 20
    passed = Deadline.after(-1)
    assert passed.remaining == passed.portion(0.5).remaining == 0.0


def test_a_thread_that_does_not_end_is_interrupted() -> None:
    interrupted, stop = threading.Event(), threading.Event()

    def catching() -> None:
        while not interrupted.is_set():
            try:
                while True:
                    stop.wait(0.01)
            except FeedStopped:
                interrupted.set()

    thread = AuthorThread(catching, "catching")
    thread.start()
    assert join_or_interrupt([thread], Deadline.after(3))
    assert interrupted.is_set()


def test_a_thread_in_a_blocking_call_is_not_waited_for_after_the_deadline() -> None:
    stop = threading.Event()

    def blocking() -> None:
        with suppress(FeedStopped):
            stop.wait()

    thread = AuthorThread(blocking, "blocking")
    thread.start()
    assert not join_or_interrupt([thread], Deadline.after(0.1))
    stop.set()
    thread.join(10)


def test_delays_double_up_to_a_cap_and_are_spread_over_their_upper_half() -> None:
    longest = Backoff(first=0.5, cap=30.0, random=lambda: 1.0)
    assert [longest.delay(failures) for failures in (1, 2, 3, 7, 5000)] == [0.5, 1.0, 2.0, 30.0, 30.0]
    shortest = Backoff(first=0.5, cap=30.0, random=lambda: 0.0)
    assert [shortest.delay(failures) for failures in (1, 2, 3, 7, 5000)] == [0.25, 0.5, 1.0, 15.0, 15.0]
    assert len({RESTARTS.delay(1) for _ in range(20)}) > 1
    assert all(0.25 <= RESTARTS.delay(1) <= 0.5 for _ in range(20))
    assert math.isfinite(RESTARTS.delay(10**6))
