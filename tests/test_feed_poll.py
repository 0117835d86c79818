"""The source `poll` on a server that is not ours, which is killed and restarted."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import pytest
from http_server import Exchange, serving
from killed_driver import KilledDriver
from processes import wait_until
from servers import RestApi, rest_api

import headwater as hw
from headwater.http import HttpError
from headwater.sources import poll
from headwater.testing import RunningStream

Stream = Callable[..., RunningStream]
SOON = timedelta(milliseconds=20)
JSON: dict[str, Any] = {"decode": "json", "schema": "id LONG, price DOUBLE, word STRING", "interval": SOON}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[RestApi]:
    with rest_api(tmp_path / "api") as server:
        yield server


def source(api: RestApi, path: str, **options: Any) -> Any:
    return poll(f"{api.url}/{path}", **{**JSON, **options})


def ids(rows: list[Any]) -> list[int]:
    return [row["id"] for row in rows]


def caught_up(source: Any, since: Any = None) -> tuple[list[Any], Any]:
    """The rows up to CAUGHT_UP, and the cursor after them."""
    rows, cursor, items = [], since, source.read(since)
    for item in takewhile(lambda item: item is not hw.CAUGHT_UP, items):
        rows += item.rows if isinstance(item.rows, list) else item.rows.to_pylist()
        cursor = item.cursor
    items.close()
    source.close()
    return rows, cursor


CURSORS: dict[str, tuple[str, dict[str, Any]]] = {
    "query": ("after", {"records": "data.items", "cursor": "id", "resume": "query:after"}),
    "header": ("after", {"records": "data.items", "cursor": "id", "resume": "header:After"}),
    "body": (
        "search",
        {
            "records": "hits",
            "cursor": "id",
            "resume": "body:where.after",
            "body": '{"where": {}, "limit": 7}',
        },
    ),
    "token": (
        "tokens",
        {
            "records": "items",
            "cursor": "id",
            "resume": "query:after",
            "next": "meta.next",
            "page": "query:page",
        },
    ),
    "link and key": ("links", {"next": "link", "key": ["id"]}),
    "newest first, key": ("newest", {"key": ["id", "word"]}),
}
EACH = pytest.mark.parametrize("how", CURSORS)


@EACH
def test_all_records_come_once_over_polls_and_restarts(how: str, api: RestApi) -> None:
    path, options = CURSORS[how]
    api.add(25)
    first, cursor = caught_up(source(api, path, **options))
    api.add(44)
    second, cursor = caught_up(source(api, path, **options), cursor)
    none, _ = caught_up(source(api, path, **options), cursor)
    assert (sorted(ids(first)), sorted(ids(second)), none) == ([*range(1, 26)], [*range(26, 45)], [])


@EACH
def test_a_query_goes_on_exactly_after_its_server_was_killed(
    how: str, api: RestApi, tmp_path: Path, stream: Stream
) -> None:
    """And after the query was killed as well."""
    path, options = CURSORS[how]
    api.add(20)
    running = source(api, path, retry=SOON, **options)
    query = stream(running, checkpoint=tmp_path / "checkpoint")
    query.rows(20)
    api.kill()
    query.wait_for(lambda feeds: [feed.state for feed in feeds] == ["reconnecting"])
    api.add(40)
    api.start()
    query.rows(40)
    query.kill()
    api.add(60)
    query.restart()
    rows = query.rows(60)
    assert sorted(ids(rows)) == list(range(1, 61))
    assert {row.word for row in rows} == {f"Grüße {n}" for n in range(1, 61)}


@pytest.mark.process
def test_a_driver_killed_with_sigkill_loses_and_repeats_nothing(api: RestApi, tmp_path: Path) -> None:
    options = {"url": f"{api.url}/links", "next": "link", "key": "id", "interval": "50ms", "retry": "50ms"}
    driver = KilledDriver(tmp_path, "poll", options)
    stop, count = threading.Event(), 0

    def grow() -> None:
        nonlocal count
        while not stop.wait(0.02):
            count += 1
            api.add(count)

    growing = threading.Thread(target=grow)
    growing.start()
    try:
        for _ in range(2):
            seen = len(driver.rows)
            driver.run_until(lambda rows, seen=seen: len(rows) > seen + 50, "more rows")  # type: ignore[misc]
            api.kill()
            api.start()
    finally:
        stop.set()
        growing.join()
    driver.run_until(lambda rows: len(rows) >= count, "all rows")
    found = [int(re.findall(r"\d+", row["data"])[0]) for row in driver.rows]
    assert sorted(found) == list(range(1, count + 1))


# Requests


def test_an_unchanged_response_is_not_sent_again(api: RestApi) -> None:
    api.add(3)
    rows, cursor = caught_up(source(api, "newest", key=["id"]))
    assert ids(rows) == [3, 2, 1]
    assert cursor["conditions"] == {"if-none-match": '"3"'}
    assert caught_up(source(api, "newest", key=["id"]), cursor) == ([], cursor)
    api.add(4)
    rows, _ = caught_up(source(api, "newest", key=["id"]), cursor)
    assert ids(rows) == [4]
    assert [request["headers"].get("if-none-match") for request in api.requests] == [None, '"3"', '"3"']


def test_an_idle_poll_writes_nothing_to_the_log(api: RestApi) -> None:
    api.add(3)
    items = source(api, "newest", key=["id"]).read(None)
    assert [type(item).__name__ for item in islice(items, 4)] == ["At", "_CaughtUp", "_CaughtUp", "_CaughtUp"]
    items.close()


def test_without_a_key_or_a_cursor_each_poll_gives_all_records(api: RestApi, stream: Stream) -> None:
    api.add(2)
    query = stream(source(api, "after", records="data.items"))
    assert ids(query.rows(6))[:6] == [1, 2, 1, 2, 1, 2]


def test_a_backlog_behind_a_cursor_is_read_without_waiting(api: RestApi) -> None:
    api.add(95)
    day = timedelta(days=1)
    rows, _ = caught_up(
        source(api, "after", records="data.items", cursor="id", resume="query:after", interval=day)
    )
    assert ids(rows) == list(range(1, 96))


def test_a_first_start_can_be_given_a_cursor(api: RestApi, stream: Stream) -> None:
    api.add(12)
    options = {"records": "data.items", "cursor": "id", "resume": "query:after"}
    query = stream(source(api, "after", **options), start_cursor="10", available_now=True)
    assert ids(query.done()) == [11, 12]


def test_a_post_has_its_body_its_content_type_and_its_headers(api: RestApi) -> None:
    api.add(1)
    token = hw.Secret("Authorization: Bearer abc")
    rows, _ = caught_up(
        source(api, "search", records="hits", body='{"where": {}, "limit": 5}', headers=token)
    )
    assert ids(rows) == [1]
    (request,) = api.requests
    assert (request["method"], request["body"]) == ("POST", {"where": {}, "limit": 5})
    assert request["headers"] == {"authorization": "Bearer abc", "content-type": "application/json"}


def test_a_post_is_redirected_only_as_a_post(api: RestApi) -> None:
    api.add(1)
    body = '{"where": {}, "limit": 5}'
    rows, _ = caught_up(source(api, "moved?status=307", records="hits", body=body))
    assert ids(rows) == [1]
    with pytest.raises(HttpError, match=r"redirects a POST to .* with status 302; only 307 and 308"):
        caught_up(source(api, "moved?status=302", records="hits", body=body))


def test_a_server_that_has_no_requests_left_is_asked_later(api: RestApi) -> None:
    api.add(1)
    rows, _ = caught_up(source(api, "limited", records="data.items"))
    assert ids(rows) == [1]
    assert len(api.requests) == 3  # one is counted twice


@pytest.mark.parametrize(
    ("headers", "pause"),
    [
        ({}, 60),
        ({"Retry-After": "300"}, 300),
        ({"Retry-After": "5"}, 60),
        ({"X-Poll-Interval": "90"}, 90),
        ({"RateLimit-Remaining": "0", "RateLimit-Reset": "120"}, 120),
        ({"RateLimit-Remaining": "1", "RateLimit-Reset": "120"}, 60),
        ({"Retry-After": "99999"}, 3600),
    ],
)
def test_a_pause_is_as_long_as_the_server_asks(headers: dict[str, str], pause: float) -> None:
    def respond(exchange: Exchange) -> None:
        exchange.respond(200, b"[]", **{name.replace("-", "_"): value for name, value in headers.items()})

    with serving(respond) as server:
        asked = poll(server.url)
        items = asked.read(None)
        assert next(item for item in items if item is hw.CAUGHT_UP)
        waits: list[float] = []
        closed = asked._http._closed  # type: ignore[attr-defined]
        closed.wait = lambda seconds: waits.append(seconds) or closed.set()
        assert list(items) == []
    assert waits == [pause]


# Records


def test_records_are_as_they_stand_in_the_response(stream: Stream) -> None:
    body = b'\xef\xbb\xbf{"a": [{"b": 1}], "items" : [ {"price": 1.50, "big": 1e400} ,"x", null]}'
    with serving(lambda exchange: exchange.respond(200, body)) as server:
        rows, _ = caught_up(poll(server.url, records="items"))
    assert [row["data"] for row in rows] == ['{"price": 1.50, "big": 1e400}', '"x"', "null"]


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        (
            "after",
            {"records": "data.rows"},
            "has no 'data.rows', which option 'records' names; there is: count, items",
        ),
        (
            "elsewhere",
            {"records": "items", "next": "next"},
            "the next page is refused: http://127.0.0.1:1/ has another",
        ),
        ("same", {"records": "items", "next": "next"}, "the next page of a page is that page itself"),
        ("tokens", {"records": "items", "next": "meta.next"}, "the next page is 1, which is no URL"),
        ("html", {}, "the content type of the response is 'text/html'"),
        ("broken", {}, "the response is not JSON"),
        ("after", {"max_response_bytes": 100}, "the response is longer than 100 bytes"),
        ("nowhere", {}, "responds with status 404"),
    ],
)
def test_a_response_that_cannot_be_read_is_an_error(
    path: str, options: dict[str, Any], message: str, api: RestApi
) -> None:
    api.add(20)
    with pytest.raises(HttpError, match=re.escape(message)):
        list(source(api, path, decode="text", schema=None, **options).read(None))


def test_a_response_that_is_cut_off_is_asked_for_again() -> None:
    def cut(exchange: Exchange) -> None:
        exchange.stream("application/json", b'[{"id": 1}', end=False)

    with serving(cut, lambda exchange: exchange.respond(200, b'[{"id": 2}]')) as server:
        rows, _ = caught_up(poll(server.url, retry=SOON))
    assert [row["data"] for row in rows] == ['{"id": 2}']


def test_five_thousand_keys_are_known_after_a_restart() -> None:
    def numbers(exchange: Exchange) -> None:
        exchange.respond(200, str(list(range(5001))).encode())

    with serving(numbers) as server:
        rows, cursor = caught_up(poll(server.url, key=["id"]))
        assert len(rows) == 5001  # no key, no repeat
    body = ", ".join(f'{{"id": {n}}}' for n in range(5001))
    with serving(lambda exchange: exchange.respond(200, f"[{body}]".encode())) as server:
        rows, cursor = caught_up(poll(server.url, key=["id"]))
        assert len(rows) == 5001
        assert len(cursor["keys"]) < 60_000
    half = body[body.index('{"id": 1}') :]
    with serving(lambda exchange: exchange.respond(200, f"[{half}]".encode())) as server:
        assert caught_up(poll(server.url, key=["id"]), cursor)[0] == []
    with serving(lambda exchange: exchange.respond(200, b'[{"id": 0}]')) as server:
        assert len(caught_up(poll(server.url, key=["id"]), cursor)[0]) == 1  # the oldest key is forgotten


# Options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cursor": "id"}, "options 'cursor' and 'resume' go together, and 'resume' is missing"),
        (
            {"cursor": "id", "resume": "url:a"},
            "option 'resume' is 'url:a', it must be query:NAME, header:NAME or",
        ),
        ({"cursor": "id", "resume": "body:a"}, "'body:a', which needs option 'body' to be a JSON object"),
        ({"page": "query:p"}, "option 'page' needs option 'next'"),
        ({"records": "a..b"}, "option 'records' is 'a..b', it must be field names separated by dots"),
        ({"body": "{"}, "option 'body' is not JSON"),
        ({"max_response_bytes": 0}, "option 'max_response_bytes' is 0, it must be 1 or more"),
        ({"url": "http://example.org"}, "plain http can be read and changed in transit"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        poll(**{"url": "https://example.org/a", **options})


@pytest.mark.parametrize("cursor", [{"version": 2}, {"version": 1, "after": 1}, {"a": 1}])
def test_a_cursor_of_something_else_is_refused(cursor: Any) -> None:
    with pytest.raises(ValueError, match="is not one of source 'poll'"):
        next(poll("https://example.org/a").read(cursor))


def test_a_source_that_waits_can_be_closed(api: RestApi) -> None:
    asked = source(api, "after", records="data.items", interval=timedelta(days=1))
    reader = threading.Thread(target=lambda: list(asked.read(None)))
    reader.start()
    wait_until(lambda: bool(api.requests), lambda: api.requests)
    asked.close()
    reader.join(60)
    assert not reader.is_alive()
