"""Two resumable sources for real protocols, drafted with public names only, to try the author's API on them.

Each speaks to a small server on this machine, is cut in the middle, and goes on where it was.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from time import monotonic
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
import sseclient

import headwater as hw

# The drafts


class Sse(hw.Source, name="draft_sse", schema="id STRING, event STRING, data STRING"):
    """Server-sent events of a URL."""

    def __init__(self, url: str, token: hw.Secret | None = None) -> None:
        self.url, self.token = url, token
        self._response: requests.Response | None = None
        self._closed = False

    def read(self, since: str | None) -> Iterator[Any]:
        headers = {"Accept": "text/event-stream", "Last-Event-ID": since}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token.reveal()}"
        with requests.get(self.url, headers=headers, stream=True, timeout=(10, None)) as response:
            response.raise_for_status()
            self._response = response
            if self._closed:
                return
            for event in sseclient.SSEClient(self._chunks(response)).events():
                since = event.id or since
                yield hw.At(since, (event.id, event.event, event.data))

    def _chunks(self, response: requests.Response) -> Iterator[bytes]:
        yield from response.iter_content(None)
        raise ConnectionError(f"{self.url} has closed the stream")  # else sseclient gives half an event

    def close(self) -> None:
        self._closed = True
        if self._response is not None:
            with suppress(RuntimeError, ValueError, OSError):  # the read is over already
                self._response.raw.shutdown()  # close() would wait for the read that it is to end


class MeetupRsvp(hw.Source, name="draft_meetup_rsvp", schema="rsvp_id LONG, mtime LONG, response STRING"):
    """RSVPs of Meetup: one JSON object per line, in order of `mtime`, which several may share."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._response: requests.Response | None = None
        self._closed = False

    def read(self, since: dict[str, Any] | None) -> Iterator[Any]:
        last = dict(since or {"mtime": 0, "ids": []})  # the ids that were given of the last mtime
        ask = {} if since is None else {"since_mtime": last["mtime"] - 1}
        with requests.get(self.url, params=ask, stream=True, timeout=(10, None)) as response:
            response.raise_for_status()
            self._response = response
            if self._closed:
                return
            for line in filter(None, response.iter_lines(chunk_size=None)):
                rsvp = json.loads(line)
                mtime, rsvp_id = rsvp["mtime"], rsvp["rsvp_id"]
                if mtime < last["mtime"] or (mtime == last["mtime"] and rsvp_id in last["ids"]):
                    continue
                ids = [*last["ids"], rsvp_id] if mtime == last["mtime"] else [rsvp_id]
                last = {"mtime": mtime, "ids": ids}
                yield hw.At(last, (rsvp_id, mtime, rsvp["response"]))

    def close(self) -> None:
        self._closed = True
        if self._response is not None:
            with suppress(RuntimeError, ValueError, OSError):
                self._response.raw.shutdown()


# Their servers


class Server:
    """Answers each request with the chunks that `feed` gives for it."""

    def __init__(self, feed: Callable[[Any], Iterator[bytes]]) -> None:
        self.cut_after: int | None = None  # chunks
        self.says_that_it_ends = True
        self.hang = threading.Event()  # set: wait at the end of the stream
        self.done = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for chunk in islice(feed(self), server.cut_after):
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                self.wfile.flush()
                self.close_connection = True
                if server.hang.is_set():
                    server.done.wait(30)
                elif server.says_that_it_ends:
                    self.wfile.write(b"0\r\n\r\n")

            def log_message(self, *args: object) -> None: ...

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = False  # so that closing waits for them
        self.url = f"http://127.0.0.1:{self.http.server_port}/stream"


@contextmanager
def serving(feed: Callable[[Any], Iterator[bytes]]) -> Iterator[Server]:
    server = Server(feed)
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.done.set()
        server.http.shutdown()
        server.http.server_close()
        thread.join(10)


EVENTS = [(str(n), "message" if n % 2 else "tick", f"line {n}\nof ünicode") for n in range(1, 13)]


def events_after(request: Any) -> Iterator[bytes]:
    """Each event in two chunks, cut within a line, then a comment, as servers send it to stay alive."""
    last = int(request.headers.get("Last-Event-ID") or 0)
    for number, name, data in EVENTS[last:]:
        lines = [f"id: {number}", f"event: {name}", *(f"data: {line}" for line in data.split("\n")), "", ""]
        text = "\n".join(lines).encode()
        half = len(text) // 2
        yield text[:half]
        yield text[half:]
        yield b": keep-alive\n\n"


MTIMES = [100, 100, 101, 103, 103, 103, 103, 104, 107, 107, 108]
RSVPS = [(1000 + n, mtime, "yes" if n % 3 else "no") for n, mtime in enumerate(MTIMES)]


def rsvps_after(request: Any) -> Iterator[bytes]:
    asked = parse_qs(urlsplit(request.path).query).get("since_mtime", ["0"])
    for rsvp_id, mtime, response in RSVPS:
        if mtime > int(asked[0]):
            yield json.dumps({"rsvp_id": rsvp_id, "mtime": mtime, "response": response}).encode() + b"\n"


DRAFTS = [
    pytest.param(Sse, events_after, EVENTS, id="sse"),
    pytest.param(MeetupRsvp, rsvps_after, RSVPS, id="meetup"),
]


def read(source: Any, since: Any) -> Iterator[Any]:
    """What is left of a stream after `since`; until it is over or breaks."""
    try:
        yield from source.read(since=since)
    except (ConnectionError, requests.RequestException):
        pass
    finally:
        source.close()


# The claims


@pytest.mark.parametrize(("draft", "feed", "rows"), DRAFTS)
def test_a_draft_gives_all_rows_without_spark(draft: Any, feed: Any, rows: list[Any]) -> None:
    with serving(feed) as server:
        assert [item.rows for item in read(draft(server.url), None)] == rows
        assert list(islice(draft(server.url), len(rows))) == rows


@pytest.mark.parametrize("cut", range(1, 13))
@pytest.mark.parametrize(("draft", "feed", "rows"), DRAFTS)
def test_left_after_any_row_a_draft_goes_on_after_it(
    draft: Any, feed: Any, rows: list[Any], cut: int
) -> None:
    with serving(feed) as server:
        first = list(islice(read(draft(server.url), None), cut))
        cursor = json.loads(json.dumps(first[-1].cursor))  # as it comes back from a checkpoint
        rest = list(read(draft(server.url), cursor))
    assert [item.rows for item in [*first, *rest]] == rows


@pytest.mark.parametrize("politely", [True, False])
@pytest.mark.parametrize("step", [1, 2, 4, 5, 7])
@pytest.mark.parametrize(("draft", "feed", "rows"), DRAFTS)
def test_cut_by_the_server_again_and_again_no_row_is_lost_or_repeated(
    draft: Any, feed: Any, rows: list[Any], step: int, politely: bool
) -> None:
    got: list[Any] = []
    with serving(feed) as server:
        server.says_that_it_ends = politely
        for attempt in range(100):
            server.cut_after = step + 2 + attempt  # at other places, within events too
            got += read(draft(server.url), got[-1].cursor if got else None)
            if len(got) >= len(rows):
                break
    assert [item.rows for item in got] == rows


@pytest.mark.parametrize(("draft", "feed", "rows"), DRAFTS)
def test_close_from_another_thread_ends_a_read_that_waits(draft: Any, feed: Any, rows: list[Any]) -> None:
    with serving(feed) as server:
        server.hang.set()
        source = draft(server.url)
        got: list[Any] = []
        all_there, ended = threading.Event(), threading.Event()

        def run() -> None:
            try:
                for item in source.read(since=None):
                    got.append(item.rows)
                    if len(got) == len(rows):
                        all_there.set()
            except (ConnectionError, requests.RequestException):
                pass
            ended.set()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            assert all_there.wait(10)
            assert not ended.wait(0.1)
        finally:
            begun = monotonic()
            source.close()
        assert ended.wait(10)
        assert monotonic() - begun < 5  # the server waits for longer
        thread.join(10)
    assert got == rows


def test_a_secret_is_sent_and_not_shown() -> None:
    seen: list[str | None] = []

    def feed(request: Any) -> Iterator[bytes]:
        seen.append(request.headers.get("Authorization"))
        return events_after(request)

    with serving(feed) as server:
        source = Sse(server.url, hw.Secret("hush"))
        assert next(iter(source)) == EVENTS[0]
    assert seen == ["Bearer hush"]
    assert "hush" not in repr(source)
