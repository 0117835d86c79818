"""The source `websocket` with a real server: reconnecting, resuming, gaps, and what is refused."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from http_server import certificate
from processes import APPS, kill_group, wait_until
from servers import _free_port
from websockets.sync.server import serve

import headwater as hw
from headwater.sim import (
    BadRecord,
    Cut,
    CutMidCharacter,
    CutMidRecord,
    End,
    Redirect,
    Repeat,
    Reset,
    Skip,
    Stall,
    Status,
    WebSocketSim,
)
from headwater.sources import websocket
from headwater.sources.websocket import _Upstream  # private: no server cuts exactly there
from headwater.testing import RunningStream

Stream = Callable[..., RunningStream]

SOON = timedelta(milliseconds=20)
EVENTS = 1000


class Server:
    """apps/websocket_app.py, which can be killed and restarted on the same port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = _free_port()
        self._popen: subprocess.Popen[bytes] | None = None

    def url(self, path: str) -> str:
        return f"ws://127.0.0.1:{self._port}/{path}"

    def start(self) -> None:
        log = self._folder / "server.log"
        log.write_bytes(b"")
        command = [sys.executable, str(APPS / "websocket_app.py"), str(self._port)]
        with log.open("ab") as out:
            self._popen = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, env=os.environ, start_new_session=True
            )
        wait_until(lambda: "listening" in log.read_text(), log.read_text)

    def signal(self, number: int) -> None:
        assert self._popen is not None
        self._popen.send_signal(number)

    def kill(self) -> None:
        if self._popen is not None:
            kill_group(self._popen)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = Server(tmp_path)
    running.start()
    yield running
    running.kill()


@contextmanager
def items(source: Any, since: Any = None) -> Iterator[Iterator[hw.At]]:
    """What `read` yields, in an event loop of this thread."""
    loop = asyncio.new_event_loop()
    iterator = source.read(since)

    def steps() -> Iterator[hw.At]:
        while True:
            yield loop.run_until_complete(asyncio.wait_for(anext(iterator), 60))

    try:
        yield steps()
    finally:
        loop.run_until_complete(iterator.aclose())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def resumable(url: str, **options: Any) -> Any:
    defaults = {"cursor": "meta.t", "resume": "query:cursor", "decode": "json", "schema": "n LONG"}
    return websocket(url, **{**defaults, "retry": SOON, **options})


def numbers(rows: list[Any]) -> list[int]:
    return [row["n"] for row in rows]


# Messages


def test_a_message_is_a_row_with_its_url_and_time_of_arrival(server: Server) -> None:
    before = datetime.now(timezone.utc)
    (row,) = islice(websocket(server.url("events?token=secret")), 1)
    assert list(row) == ["data", "url", "arrived"]
    assert json.loads(row["data"])["word"] == "Grüße 0"
    assert row["url"] == server.url("events")
    assert before <= row["arrived"] <= datetime.now(timezone.utc)


def test_messages_may_be_binary(server: Server) -> None:
    rows = list(islice(websocket(server.url("binary"), decode="binary"), 2))
    assert [row["data"] for row in rows] == [b"\x00\xff", "Grüße".encode()]
    bad, good = islice(websocket(server.url("binary")), 2)
    assert isinstance(bad, hw.BadRow)
    assert good[0] == "Grüße"


@pytest.mark.parametrize("compression", [True, False])
def test_subscriptions_and_headers_are_sent_after_each_connect(server: Server, compression: bool) -> None:
    source = websocket(
        server.url("hello"),
        subscribe=['{"op": "subscribe"}', "b"],
        headers="Authorization: Bearer abc",
        compression=compression,
    )
    (row,) = islice(source, 1)
    hello = json.loads(row["data"])
    assert hello["got"] == ['{"op": "subscribe"}', "b"]
    headers = {name.lower(): value for name, value in hello["headers"].items()}
    assert (headers["authorization"], headers["user-agent"]) == ("Bearer abc", "headwater")
    assert hello["extensions"] == (["PerMessageDeflate"] if compression else [])


def test_rows_of_several_urls_say_where_they_are_from(server: Server) -> None:
    urls = [server.url("events"), server.url("binary")]
    rows = list(islice(websocket(" ".join(urls), decode="binary"), EVENTS + 2))
    assert [row["data"] for row in rows if row["url"] == urls[1]] == [b"\x00\xff", "Grüße".encode()]
    assert len([row for row in rows if row["url"] == urls[0]]) == EVENTS


def test_each_url_has_its_own_cursor(server: Server) -> None:
    source = resumable(f"{server.url('events')} {server.url('events?cursor=330')}")
    with items(source) as read:
        seen = 0
        while seen < EVENTS + 10:
            item = next(read)
            seen += len(item.rows)
    after = [position["after"] for position in item.cursor["cursors"]]
    assert after == [333, 333]
    with items(source, {"cursors": [{"after": 332, "seen": []}, item.cursor["cursors"][1]]}) as read:
        assert numbers(next(read).rows.to_pylist()) == [996, 997, 998, 999]


def test_a_message_that_is_too_long_is_an_error(server: Server) -> None:
    with pytest.raises(ValueError, match="longer than option 'max_message_bytes' allows"):
        list(websocket(server.url("large"), max_message_bytes=1000, retry=SOON))


# Resuming


@pytest.mark.parametrize("cut", [0, 1, 100, 101, 102, 998])
def test_messages_that_share_a_cursor_come_once_wherever_a_connection_is_cut(
    server: Server, cut: int
) -> None:
    """Of three messages with one cursor, the connection has brought 1, 2 or 3."""
    source = resumable(server.url("events"))
    seen = [json.loads(text) for text in _events(cut + 1)]
    upstream = _Upstream(0, "", None, ["meta", "t"], None)
    upstream.advance([text.encode() for text in _events(cut + 1)])
    with items(source, {"cursors": [upstream.position]}) as read:
        rows: list[int] = []
        while len(rows) + len(seen) < EVENTS:
            rows += numbers(next(read).rows.to_pylist())
    assert [event["n"] for event in seen] + rows == list(range(EVENTS))


def _events(count: int) -> list[str]:
    return [
        json.dumps({"n": n, "meta": {"t": n // 3}, "word": f"Grüße {n}"}, ensure_ascii=False)
        for n in range(count)
    ]


def test_a_message_with_the_last_cursor_resumes(server: Server) -> None:
    options = {"cursor": "n", "resume": 'message:{"after": {cursor}}'}
    with items(resumable(server.url("numbered"), **options), 989) as read:
        assert numbers(next(read).rows.to_pylist()) == list(range(990, EVENTS))
    with items(resumable(server.url("numbered"), subscribe=['"all"'], **options)) as read:
        assert numbers(next(read).rows.to_pylist())[0] == 0


FAULTS = [Cut(50), CutMidRecord(100), End(150), Reset(200), CutMidCharacter(250), Status(503, after=60)]


def test_faults_of_a_simulator_lose_and_repeat_nothing() -> None:
    with WebSocketSim(seed=1, rate=0, count=500, faults=[*FAULTS, Stall(300, seconds=0.1)]) as sim:
        source = resumable(sim.url, cursor="time_us", schema="seq LONG", subscribe=["hello"])
        rows = list(islice(source, 500))
        assert [row["seq"] for row in rows] == list(range(500))
        assert len(sim.faults_come) == 7
        assert "cursor" in sim.requests[-1].query
        wait_until(lambda: "hello" in sim.messages, lambda: sim.messages)


def test_gaps_and_repeats_of_a_sequence_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headwater.sources.websocket")
    faults = [Repeat(100, count=3), Skip(200, count=2), BadRecord(300)]
    with WebSocketSim(seed=1, rate=0, count=500, faults=faults) as sim:
        rows = list(islice(websocket(sim.url, sequence="seq"), 499))
    seqs = [json.loads(row["data"])["seq"] for row in rows if row["data"].endswith("}")]
    assert seqs == [*range(200), *range(202, 500)]
    assert "messages 200 to 201 are missing: 202 follows 199" in caplog.text
    assert caplog.text.count("is dropped") == 3


def test_a_server_that_answers_no_ping_is_given_up(server: Server) -> None:
    source = resumable(server.url("events"), heartbeat=timedelta(milliseconds=200), max_retries=0)
    with items(source) as read:
        while numbers(next(read).rows.to_pylist())[-1] < EVENTS - 1:
            pass
        server.signal(signal.SIGSTOP)
        with pytest.raises(ConnectionError, match="the connection was lost; gave up"):
            next(read)
        server.signal(signal.SIGCONT)


# Connections


def test_tls_is_verified(tmp_path: Path) -> None:
    file, context = certificate(tmp_path)
    with serve(lambda c: c.send("hello") or c.recv(), "127.0.0.1", 0, ssl=context) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = "wss://{}:{}/".format(*server.socket.getsockname())
        (row,) = islice(websocket(url, ca_file=str(file)), 1)
        assert row["data"] == "hello"
        with pytest.raises(ConnectionError, match="certificate is refused"):
            list(websocket(url))
        server.shutdown()
        thread.join()
    assert context.verify_mode == ssl.CERT_NONE  # the server asks for none


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Status(404), "responds with status 404"),
        (Redirect(to="ws://127.0.0.1:9/x?token=a"), "redirects to 'ws://127.0.0.1:9/x': use its target"),
        (Status(503, times=3), "status 503; gave up after max_retries=2"),
    ],
)
def test_what_the_server_says_is_retried_or_an_error(fault: Any, error: str) -> None:
    with WebSocketSim(rate=0, faults=[fault]) as sim, pytest.raises(ConnectionError, match=error):
        list(websocket(sim.url, retry=SOON, max_retries=2))


def test_the_reason_of_a_close_is_reported(server: Server) -> None:
    source = websocket(server.url("closing"), retry=SOON, max_retries=0)
    with pytest.raises(ConnectionError, match="code 4000 \\(that was all\\); gave up"):
        list(source)


# Options


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"url": "https://localhost"}, "it must be wss://host/path"),
        ({"url": " "}, "option 'url' is empty"),
        ({"url": "ws://example.org"}, "Use wss, or set allow_plain=true"),
        ({"url": "ws://me:pw@localhost"}, "use option 'headers'"),
        ({"cursor": "a"}, "'resume' is missing"),
        ({"cursor": "a", "resume": "header:x"}, "must be query:NAME, or message:TEXT with {cursor} in TEXT"),
        ({"cursor": "a..b", "resume": "query:x"}, "field names separated by dots"),
        ({"max_retries": -1}, "it must be 0 or more"),
        ({"heartbeat": timedelta(0)}, "it must be longer than 0"),
        ({"headers": "a"}, "header 1 is not Name: value"),
        ({"decode": "json"}, "needs a schema"),
    ],
)
def test_options_that_are_not_valid_are_refused(options: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        websocket(**{"url": "ws://localhost", **options})


def test_without_its_library_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "websockets.asyncio.client", None)
    with pytest.raises(hw.HeadwaterError) as raised:
        websocket("ws://localhost")
    assert str(raised.value) == (
        "source 'websocket' needs websockets. Fix: pip install headwater[websocket]."
    )


# In a query


def test_each_message_is_one_row_while_server_and_query_are_killed(
    server: Server, stream: Stream, tmp_path: Path
) -> None:
    query = stream(
        resumable(server.url("events")), checkpoint=tmp_path / "checkpoint", max_rows_per_trigger=100
    )
    query.rows(100)
    server.kill()
    query.wait_for(lambda feeds: bool(feeds) and feeds[0].state == "reconnecting")
    query.kill()
    server.start()
    query.restart()
    query.rows(400)
    query.kill()
    rows = query.restart().rows(EVENTS)
    assert [row.n for row in rows] == list(range(EVENTS))


def test_several_urls_are_divided_among_feeds_and_resumed(stream: Stream, tmp_path: Path) -> None:
    with (
        WebSocketSim(seed=1, rate=0, count=300, faults=[Cut(100)]) as one,
        WebSocketSim(seed=2, rate=0, count=200, faults=[Reset(50)]) as two,
    ):
        source = resumable(f"{one.url} {two.url}", cursor="time_us", schema="seq LONG", metadata=True)
        query = stream(source, checkpoint=tmp_path / "checkpoint", concurrency=2)
        query.rows(200)
        rows = query.kill().restart().rows(500)
        for sim, count in ((one, 300), (two, 200)):
            assert [row.seq for row in rows if row.url == sim.url] == list(range(count))


def test_gaps_show_as_the_last_error_of_the_feed(stream: Stream) -> None:
    with WebSocketSim(seed=1, rate=0, count=300, faults=[Skip(200)]) as sim:
        query = stream(websocket(sim.url, sequence="seq"))
        query.rows(299)
        (feed,) = query.wait_for(lambda feeds: bool(feeds[0].last_error))
        assert feed.last_error.endswith("messages 200 to 200 are missing")
        assert feed.state == "running"
