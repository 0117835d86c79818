"""`headwater.http` against real sockets: what is retried and when, what is refused, what close() ends.

Imports private classes: the decoders of chunks and of compressed bodies, to split their input anywhere, and
the socket, to know when a connect has begun and to stand for networks that are not there.
"""

from __future__ import annotations

import gzip
import logging
import random
import re
import socket
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from itertools import islice, pairwise
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from growth import assert_linear
from http_server import Exchange, certificate, chunked, serving
from processes import wait_until

import headwater as hw
from headwater.http import Connection, Http, HttpError, Request
from headwater.http.address import address_kind
from headwater.http.chunked import ChunkDecoder
from headwater.http.compressed import Decompressor
from headwater.http.transport import CurrentSocket
from headwater.sources import meetup_rsvp, ndjson, sse

SOON = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)


def http(url: str, **options: Any) -> Http:
    return Http(url, **{"retry": SOON, **options})


def first(client: Http) -> Connection:
    """The first connection. It ends with its iterator, which is therefore kept."""
    connections = client.connections()
    connection = next(connections)
    connection.kept = connections  # type: ignore[attr-defined]
    return connection


def body(client: Http) -> bytes:
    return b"".join(first(client).chunks())


def hello(exchange: Exchange) -> None:
    exchange.respond(body=b"hello")


def status(code: int, **headers: str) -> Callable[[Exchange], None]:
    return lambda exchange: exchange.respond(code, b"the body says why", **headers)


# Which URLs and options are allowed


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://example.org/", "it must be https://host/path"),
        ("https:///path", "it must be https://host/path"),
        ("example.org", "it must be https://host/path"),
        ("https://example.org/a b", "it must be https://host/path"),
        ("https://example.org/\r\nHost: other", "it must be https://host/path"),
        ("https://example.org:0/", "it must be https://host/path"),
        ("https://example.org:x/", "not a URL"),
        ("https://[::1/", "not a URL"),
        ("http://example.org/", "allow_http=true"),
        ("http://127.0.0.1.example.org/", "allow_http=true"),
        ("http://10.0.0.1/", "allow_http=true"),
    ],
)
def test_a_url_that_is_not_allowed_is_refused_before_anything_is_sent(url: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Http(url)


@pytest.mark.parametrize("url", ["https://hugo:hush@example.org/", "https://hush@example.org/?token=hush"])
def test_a_password_in_a_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match="use option 'headers'") as raised:
        Http(url)
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1/", "http://127.8.8.8:81/", "http://[::1]/", "http://localhost/", "https://x.org"],
)
def test_plain_http_is_for_this_machine_only_unless_it_is_allowed(url: str) -> None:
    Http(url)
    Http("http://example.org/", allow_http=True)


@pytest.mark.parametrize(
    "headers",
    [
        "Authorization Bearer hush",
        ": hush",
        "A: ",
        "A b: hush",
        "A: hush\x07",
        "Ä: hush",
        "Host: hush",
        '{"A": 1}',
        "{",
    ],
)
def test_malformed_headers_are_refused_and_not_repeated(headers: str) -> None:
    with pytest.raises(ValueError, match="option 'headers'") as raised:
        Http("https://example.org/", headers=hw.Secret(headers))
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value"), [("max_retries", -1), ("max_record_bytes", 0), ("idle_timeout", timedelta(0))]
)
def test_an_impossible_limit_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"option '{name}'"):
        Http("https://example.org/", **{name: value})


# What is sent


def test_headers_and_parameters_are_sent() -> None:
    with serving(hello) as server:
        secret = hw.Secret('{"Authorization": "Bearer hush", "user-agent": "me"}')
        client = http(server.url + "?since=1&all=a%20b", headers=secret)
        request = Request(params={"since": "7"}, headers={"Last-Event-ID": "ü".encode()})
        next(client.connections(lambda: request))
    sent = server.requests[0]
    assert sent.query == {"all": "a b", "since": "7"}
    assert sent.headers["authorization"] == "Bearer hush"
    assert sent.headers["user-agent"] == "me"
    assert sent.headers["accept-encoding"] == "gzip, deflate"
    assert sent.headers["last-event-id"].encode("latin-1") == "ü".encode()


def test_headers_are_read_anew_for_each_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that is renewed in its file is used."""
    token = tmp_path / "token"
    token.write_text("Authorization: one")
    with serving(hello) as server:
        client = http(server.url, headers=hw.Secret(f"file:{token}"))
        connections = client.connections()
        next(connections)
        token.write_text("Authorization: two")
        next(connections)
    assert [sent.headers["authorization"] for sent in server.requests] == ["one", "two"]


def test_no_cookie_is_stored_and_no_netrc_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login hugo password hush\n")
    monkeypatch.setenv("NETRC", str(netrc))
    with serving(lambda exchange: exchange.respond(body=b"x", Set_Cookie="a=b")) as server:
        connections = http(server.url, headers=hw.Secret("Authorization: mine")).connections()
        for _ in range(2):
            list(next(connections).chunks())
    assert [sent.headers.get("cookie") for sent in server.requests] == [None, None]
    assert [sent.headers.get("authorization") for sent in server.requests] == ["mine", "mine"]


# Redirects


def redirect(to: str, code: int = 302) -> Callable[[Exchange], None]:
    return lambda exchange: exchange.respond(code, b"there", Location=to)


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_is_followed_with_headers_while_the_origin_is_the_same(code: int) -> None:
    with serving(redirect("/other?x=1", code), hello) as server:
        assert body(http(server.url, headers=hw.Secret("A: hush"))) == b"hello"
    assert [(sent.path, sent.headers.get("a")) for sent in server.requests] == [
        ("/stream", "hush"),
        ("/other", "hush"),
    ]


def elsewhere(exchange: Exchange) -> None:
    """Redirects to another origin: the same server by another name."""
    exchange.respond(302, Location=f"http://localhost:{exchange.socket.getsockname()[1]}/stream")


def test_headers_never_go_to_another_origin() -> None:
    with serving(elsewhere, hello) as server:
        client = http(server.url, headers=hw.Secret("Authorization: Bearer hush\nX-Key: hush"))
        request = Request(headers={"Last-Event-ID": "7"})
        assert b"".join(next(client.connections(lambda: request)).chunks()) == b"hello"
    assert "authorization" in server.requests[0].headers
    assert "hush" not in str(server.requests[1].headers)
    assert server.requests[1].headers["last-event-id"] == "7"


def test_each_connection_begins_at_the_url_itself() -> None:
    with serving(redirect("/other"), hello, hello) as server:
        connections = http(server.url).connections()
        for _ in range(2):
            list(next(connections).chunks())
    assert [sent.path for sent in server.requests] == ["/stream", "/other", "/stream"]


@pytest.mark.parametrize(
    "to", ["http://example.org/", "ftp://127.0.0.1/", "https://hugo:hush@127.0.0.1/", "http://[/"]
)
def test_a_redirect_is_checked_like_the_url(to: str) -> None:
    with (
        serving(redirect(to)) as server,
        pytest.raises(HttpError, match=r"redirect from .* is refused") as raised,
    ):
        first(http(server.url))
    assert "hush" not in str(raised.value)


class Network:
    """Names with addresses anywhere; every connection ends at one server of this machine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, names: dict[str, str]) -> None:
        self.names, self.port, self.reached = names, 0, list[str]()
        self._getaddrinfo, self._connect = socket.getaddrinfo, CurrentSocket._connect
        monkeypatch.setattr(socket, "getaddrinfo", self.look_up)
        monkeypatch.setattr(CurrentSocket, "_connect", lambda *args: self.connect(*args))

    def look_up(self, host: str, port: int, *args: Any, **options: Any) -> Any:
        return self._getaddrinfo(self.names.get(host, host), port, *args, **options)

    def connect(self, current: CurrentSocket, sock: socket.socket, address: Any, timeout: float) -> None:
        self.reached.append(f"{address[0]}:{address[1]}")
        if sock.family == socket.AF_INET6:
            raise OSError("not IPv6")
        self._connect(current, sock, ("127.0.0.1", self.port), timeout)


INNER = {
    "private": "10.0.0.1",
    "carrier": "100.100.100.200",
    "metadata": "169.254.169.254",
    "local": "127.0.0.1",
    "any": "0.0.0.0",
    "unique": "fd00:ec2::254",
    "link": "fe80::1",
    "mapped": "::ffff:10.0.0.1",
    "translated": "64:ff9b::a9fe:a9fe",
    "tunnel": "2002:a00:1::",
}


@pytest.mark.parametrize(
    "to", [*INNER, *(f"[{ip}]" if ":" in ip else ip for ip in INNER.values()), "2130706433"]
)
def test_a_redirect_from_outside_to_an_inner_address_is_refused(
    to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its address where the connection is made, so that no name and no second look-up can hide it."""
    network = Network(monkeypatch, {**INNER, "outside": "93.184.216.34"})
    with serving(redirect(f"http://{to}/latest")) as server:
        network.port = int(server.url.rpartition(":")[2].partition("/")[0])
        with pytest.raises(HttpError, match=r"the redirect to .* is refused: it leads to a .* address"):
            first(http("http://outside/", allow_http=True))
    assert network.reached == ["93.184.216.34:80"]


@pytest.mark.parametrize(
    ("url", "to", "followed"),
    [
        ("http://private/", "http://10.9.9.9:81/", True),
        ("http://private/", "http://outside/", True),
        ("http://private/", "http://local/", False),
        ("http://private/", "http://metadata/", False),
        ("http://local:81/", "http://localhost:81/", True),
        ("http://local:81/", "http://127.0.0.2:82/", False),
        ("http://local/", "http://private/", False),
        ("http://metadata/", "http://169.254.1.1/", True),
        ("http://metadata/", "http://169.254.1.1:81/", False),
        ("http://outside/", "http://outside:81/", True),
    ],
)
def test_a_redirect_to_an_inner_address_is_followed_only_from_there(
    url: str, to: str, followed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Network(monkeypatch, {**INNER, "outside": "93.184.216.34"})
    with serving(redirect(to), hello) as server:
        network.port = int(server.url.rpartition(":")[2].partition("/")[0])
        if followed:
            assert body(http(url, allow_http=True)) == b"hello"
        else:
            with pytest.raises(HttpError, match="is refused"):
                first(http(url, allow_http=True))
    assert len(server.requests) == 1 + followed


def test_a_name_that_moves_inside_between_two_requests_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(monkeypatch, {"outside": "93.184.216.34"})

    def moving(exchange: Exchange) -> None:
        network.names["outside"] = "10.0.0.1"
        exchange.respond(302, Location="/other")

    with serving(moving) as server:
        network.port = int(server.url.rpartition(":")[2].partition("/")[0])
        with pytest.raises(HttpError, match="a private address"):
            first(http("http://outside/", allow_http=True))


@pytest.mark.parametrize(
    ("to", "followed"),
    [("http://other/", True), ("http://10.0.0.1/", False), ("http://localhost/", False)],
)
def test_a_proxy_is_reached_wherever_it_is_and_inner_addresses_are_refused_as_written(
    to: str, followed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy looks names up, so their addresses are not known here."""
    with serving(redirect(to), hello) as server:
        monkeypatch.setenv("http_proxy", server.url)
        monkeypatch.setenv("no_proxy", "")
        if followed:
            assert body(http("http://outside/", allow_http=True)) == b"hello"
        else:
            with pytest.raises(HttpError, match="is refused"):
                first(http("http://outside/", allow_http=True))


@pytest.mark.parametrize(
    ("host", "kind"),
    [
        ("8.8.8.8", "public"),
        ("2606:4700::1111", "public"),
        ("::ffff:8.8.8.8", "public"),
        ("example.org", "public"),
        ("172.16.0.1", "private"),
        ("192.168.1.1", "private"),
        ("224.0.0.1", "private"),
        ("fec0::1", "private"),
        ("fe80::1%eth0", "link-local"),
        ("::1", "loopback"),
        ("::", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("LOCALHOST.", "loopback"),
    ],
)
def test_kinds_of_addresses(host: str, kind: str) -> None:
    assert address_kind(host) == kind


@pytest.mark.parametrize("character", ["\x9b", "\x85", "\xa0", "\xad"])
def test_a_redirect_with_unprintable_characters_is_refused(character: str) -> None:
    def handler(exchange: Exchange) -> None:
        exchange.send(b"HTTP/1.1 302 There\r\nLocation: /" + character.encode("latin-1") + b"\r\n\r\n")

    with serving(handler) as server, pytest.raises(HttpError, match="is refused") as raised:
        first(http(server.url))
    assert str(raised.value).isprintable()


def test_a_cursor_of_another_origin_is_refused() -> None:
    """Otherwise whoever sends a redirect would get what is read there."""
    with serving(elsewhere, hello, hello) as server:
        connections = http(server.url).connections()
        with pytest.raises(
            HttpError, match=r"redirects to another origin, http://localhost.* as option 'url'"
        ):
            next(connections).check_cursor("7")
        next(connections).check_cursor("7")


@pytest.mark.parametrize(
    ("text", "in_query", "in_header"),
    [
        ("Grüße 🌍", True, True),
        ("x" * 8192, True, True),
        ("x" * 8193, False, False),
        ("\ud800", False, False),
        (" x", True, False),
        ("x\t", True, False),
        ("a\rb", True, False),
        ("a\nb: c", True, False),
        ("a\x00b", True, False),
        ("a\x9bb", True, False),
    ],
)
def test_a_cursor_that_cannot_be_sent_is_refused_before_it_is_saved(
    text: str, in_query: bool, in_header: bool
) -> None:
    with serving(hello) as server:
        connection = first(http(server.url))
    for header, accepted in ((False, in_query), (True, in_header)):
        if accepted:
            connection.check_cursor(text, header=header)
        else:
            with pytest.raises(HttpError, match="contains a cursor that") as raised:
                connection.check_cursor(text, header=header)
            assert str(raised.value).isprintable()
            assert len(str(raised.value)) < 200


def test_endless_redirects_are_an_error() -> None:
    with serving(redirect("/again")) as server, pytest.raises(HttpError, match="more than 5 redirects"):
        first(http(server.url))
    assert len(server.requests) == 6


def test_the_body_of_a_redirect_is_not_read() -> None:
    def endless(exchange: Exchange) -> None:
        exchange.send_headers(302, Location="/other", Transfer_Encoding="chunked")
        exchange.hang()

    with serving(endless, hello) as server:
        assert body(http(server.url)) == b"hello"


# What a response means


@pytest.mark.parametrize("code", [400, 401, 403, 404, 410, 422, 206, 304])
def test_other_statuses_fail_at_once_with_an_excerpt_of_the_body(code: int) -> None:
    with (
        serving(status(code)) as server,
        pytest.raises(HttpError, match=f"responds with status {code}") as raised,
    ):
        first(http(server.url + "?token=hush"))
    assert raised.value.status == code
    assert "hush" not in str(raised.value)
    assert code == 304 or "the body says why" in str(raised.value)
    assert len(server.requests) == 1


def test_an_excerpt_of_the_body_does_not_contain_what_was_sent() -> None:
    def echo(exchange: Exchange) -> None:
        exchange.respond(401, f"wrong: {exchange.headers['authorization']}".encode())

    with (
        serving(echo) as server,
        pytest.raises(HttpError, match=r"responds with status 401: wrong: \*\*\*$") as raised,
    ):
        first(http(server.url, headers=hw.Secret("Authorization: Bearer hush-hush")))
    assert "hush" not in str(raised.value)


def test_an_excerpt_of_the_body_is_shown_without_control_characters() -> None:
    text = "\x1b[31mred\x1b[0m \x9b31m \u202egnp\x07\n\tnext"
    with serving(lambda e: e.respond(400, text.encode())) as server, pytest.raises(HttpError) as raised:
        first(http(server.url))
    assert str(raised.value).endswith(r": \x1b[31mred\x1b[0m \x9b31m \u202egnp\x07 next")


@pytest.mark.parametrize("code", [403, 503])
@pytest.mark.parametrize("drips", [False, True])
def test_a_status_counts_even_if_its_body_stalls(
    code: int, drips: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("headwater.http.client._EXCERPT_SECONDS", 0.3)

    def stall(exchange: Exchange) -> None:
        exchange.send_headers(code, Content_Length="100000000")
        exchange.send(b"busy now")
        while drips and not exchange.closing.wait(0.02):
            exchange.send(b".")
        exchange.hang()

    with serving(stall, hello) as server:
        if code == 503:
            assert body(http(server.url)) == b"hello"
            assert "responds with status 503: busy now" in caplog.text
        else:
            with pytest.raises(HttpError, match="responds with status 403: busy now"):
                first(http(server.url))


def test_of_the_body_of_an_error_only_the_beginning_is_read() -> None:
    def endless(exchange: Exchange) -> None:
        exchange.send_headers(503, Transfer_Encoding="chunked")
        while not exchange.closing.is_set():
            exchange.send(chunked(b"x" * 65536))

    with serving(endless, hello) as server:
        assert body(http(server.url)) == b"hello"


@pytest.mark.parametrize("code", [408, 425, 429, 500, 502, 503, 504])
def test_temporary_statuses_are_retried(code: int) -> None:
    with serving(status(code), status(code), hello) as server:
        assert body(http(server.url)) == b"hello"
    assert len(server.requests) == 3


class Waits:
    """Replaces the event that pauses wait for: records how long they would wait, and does not wait."""

    def __init__(self, client: Http, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds: list[float] = []
        self._set = client._closed.is_set
        monkeypatch.setattr(client, "_closed", self)

    def wait(self, seconds: float) -> None:
        self.seconds.append(seconds)

    def is_set(self) -> bool:
        return self._set()


def test_pauses_grow_up_to_a_minute_and_half_of_each_is_random(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(*[status(503)] * 9, hello) as server:
        seen = {}
        for share in (0.0, 1.0):
            client = http(server.url, retry=SECOND, random=lambda share=share: share)
            seen[share] = Waits(client, monkeypatch)
            server.requests.clear()
            assert body(client) == b"hello"
    assert seen[1.0].seconds == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert seen[0.0].seconds == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_a_connection_that_received_something_resets_the_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(exchange: Exchange) -> None:
        exchange.stream("x/y", b"some", end=False)

    with serving(status(503), status(503), cut, status(503), hello) as server:
        client = http(server.url, retry=SECOND, random=lambda: 1.0)
        waits = Waits(client, monkeypatch)
        got = [b"".join(connection.chunks()) for connection in islice(client.connections(), 2)]
    assert got == [b"some", b"hello"]
    assert waits.seconds == [1, 2, 1, 2]


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7),
        ("Thu, 01 Jan 1970 00:00:30 GMT", 20),
        ("Thu, 01 Jan 1970 00:00:01 GMT", 0),
        ("86400", 600),
        ("9" * 5000, 600),
        ("-5", 1),
        ("\xb2", 1),
        ("Thu, 01 Jan 999999 00:00:01 GMT", 1),
        ("x", 1),
        ("x" * 60000, 1),
        (" ,;()" * 10000, 1),
    ],
)
def test_retry_after_is_obeyed_up_to_ten_minutes(
    header: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(status(429, Retry_After=header), hello) as server:
        client = http(server.url, retry=SECOND, random=lambda: 1.0, now=lambda: 10.0)
        waits = Waits(client, monkeypatch)
        assert body(client) == b"hello"
    assert waits.seconds == [seconds]


@pytest.mark.parametrize(
    ("seconds", "pause"),
    [(0, 0.1), (0.05, 0.1), (0.1, 0.1), (7, 7), (60, 60), (60.001, 60), (999_999.999, 60)],
)
def test_the_pause_that_a_server_asks_for_is_limited_to_a_tenth_of_a_second_and_a_minute(
    seconds: float, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(hello, hello, status(503), hello) as server:
        client = http(server.url, retry=SECOND, random=lambda: 1.0)
        waits = Waits(client, monkeypatch)
        for connection in islice(client.connections(), 3):
            assert b"".join(connection.chunks()) == b"hello"
            client.pause_for(seconds)
    assert waits.seconds == [pause] * 3


def test_max_retries_limits_the_failures_in_a_row() -> None:
    with (
        serving(status(503)) as server,
        pytest.raises(HttpError, match=r"responds with status 503.*max_retries=2"),
    ):
        first(http(server.url, max_retries=2))
    assert len(server.requests) == 3


def test_a_failure_is_logged_with_the_url_but_not_its_query(caplog: pytest.LogCaptureFixture) -> None:
    with serving(status(503), hello) as server, caplog.at_level(logging.WARNING, "headwater.http"):
        body(http(server.url + "?token=hush", headers=hw.Secret("A: hush")))
    assert f"{server.url} responds with status 503: the body says why; retrying in 0.0 s" in caplog.text
    assert "hush" not in caplog.text


# When there is no response


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.parametrize(
    ("host", "why"), [("http://127.0.0.1:{}/", "refused"), ("https://nowhere.invalid/", "(?i)name")]
)
def test_an_unreachable_server_is_retried(host: str, why: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "headwater.http"), pytest.raises(HttpError, match=why):
        first(http(host.format(free_port()), max_retries=2))
    assert len(caplog.records) == 2


@pytest.mark.parametrize("silent", ["from the first byte on", "within the headers", "within the body"])
def test_a_half_open_connection_times_out_and_is_retried(silent: str) -> None:
    def half(exchange: Exchange) -> None:
        if silent == "within the headers":
            exchange.send(b"HTTP/1.1 200 OK\r\nContent-")
        elif silent == "within the body":
            exchange.stream("x/y", b"some", end=False)
        exchange.hang()

    with serving(half, hello) as server:
        client = http(server.url, idle_timeout=timedelta(milliseconds=200))
        got = b""
        for connection in client.connections():
            got += b"".join(connection.chunks())
            if connection.complete:
                break
    assert got == (b"somehello" if silent == "within the body" else b"hello")


def test_headers_that_drip_for_ever_time_out() -> None:
    """Each byte is in time, all of them together are not."""

    def drip(exchange: Exchange) -> None:
        exchange.send(b"HTTP/1.1 200 OK\r\n")
        while not exchange.closing.wait(0.02):
            exchange.send(b"x")

    with serving(drip, hello) as server:
        begun = monotonic()
        limits = {"connect_timeout": 200 * SOON, "idle_timeout": 300 * SOON}
        assert body(http(server.url, **limits)) == b"hello"
        assert 0.4 < monotonic() - begun < 10
    assert len(server.requests) == 2


def test_a_body_that_drips_is_returned_byte_by_byte() -> None:
    steps = threading.Semaphore(0)

    def drip(exchange: Exchange) -> None:
        exchange.send_headers(Transfer_Encoding="chunked")
        for byte in chunked(b"abc"):
            assert steps.acquire(timeout=10)
            exchange.send(bytes([byte]))
        exchange.send(b"0\r\n\r\n")

    with serving(drip) as server:
        connection = first(http(server.url))
        got = []
        steps.release(4)
        chunks = connection.chunks()
        for _ in range(3):
            got.append(next(chunks))
            steps.release()
        steps.release(10)
        assert list(chunks) == []
    assert got == [b"a", b"b", b"c"]
    assert connection.complete


def test_a_server_that_does_not_speak_http_fails_at_once() -> None:
    with (
        serving(lambda exchange: exchange.send(b"SSH-2.0\r\n")) as server,
        pytest.raises(HttpError, match="not HTTP"),
    ):
        first(http(server.url))


def test_a_reset_is_retried() -> None:
    with serving(Exchange.reset, hello) as server:
        assert body(http(server.url)) == b"hello"


# TLS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


def test_https_is_read_if_its_certificate_is_trusted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, context = certificate(folder)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(file))
    with serving(hello, tls=context) as server:
        assert body(http(server.url)) == b"hello"


@pytest.mark.parametrize("which", ["unknown", "expired", "of another host"])
def test_an_invalid_certificate_fails_at_once(
    which: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, days = (
        ("127.0.0.2" if which == "of another host" else "127.0.0.1"),
        (-1 if which == "expired" else 2),
    )
    file, context = certificate(folder, days=days, host=host)
    if which != "unknown":
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(file))
    why = {"unknown": "self.signed", "expired": "expired", "of another host": "mismatch"}[which]
    with (
        serving(hello, tls=context) as server,
        pytest.raises(HttpError, match=f"certificate is refused: .*{why}"),
    ):
        first(http(server.url))
    assert server.accepted == 1
    assert server.requests == []


def test_a_redirect_from_https_to_http_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, context = certificate(folder)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(file))
    with serving(hello) as plain, serving(redirect(plain.url), tls=context) as server:
        with pytest.raises(HttpError, match="from https to http"):
            first(http(server.url))
        with pytest.raises(HttpError, match="another port"):  # so this one is allowed
            first(http(server.url, allow_http=True))


def test_http_spoken_to_a_tls_client_fails_at_once() -> None:
    with serving(hello) as server, pytest.raises(HttpError, match="TLS fails"):
        first(http(server.url.replace("http:", "https:")))


# Bodies

TEXT = "".join(f'{{"n": {n}, "word": "Grüße {n} 🌍"}}\n' for n in range(500)).encode()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("packed", ["", "gzip", "deflate", "raw deflate", "two gzips"])
def test_a_body_is_the_same_however_it_is_compressed_and_split(packed: str, seed: int) -> None:
    bare = zlib.compressobj(wbits=-15)
    data = {
        "": TEXT,
        "gzip": gzip.compress(TEXT),
        "deflate": zlib.compress(TEXT),
        "raw deflate": bare.compress(TEXT) + bare.flush(),
        "two gzips": gzip.compress(TEXT[:999]) + gzip.compress(TEXT[999:]),
    }[packed]
    encoding = "gzip" if "gzip" in packed else packed.removeprefix("raw ")
    dice = random.Random(seed)
    cuts = sorted({0, len(data), *(dice.randrange(len(data)) for _ in range(dice.choice([1, 10, 200])))})
    parts = [data[a:b] for a, b in pairwise(cuts)]
    with serving(lambda exchange: exchange.stream("x/y", *parts, Content_Encoding=encoding)) as server:
        connection = first(http(server.url))
        assert [line for lines in connection.lines() for line in lines] == TEXT.splitlines()
    assert connection.complete


def test_a_compressed_record_is_returned_when_it_has_arrived() -> None:
    """And not only when more of the compressed stream has."""
    proceed = threading.Event()

    def handler(exchange: Exchange) -> None:
        packer = zlib.compressobj(wbits=31)
        exchange.stream(
            "x/y",
            packer.compress(b"one\n") + packer.flush(zlib.Z_SYNC_FLUSH),
            end=False,
            Content_Encoding="gzip",
        )
        assert proceed.wait(10)
        exchange.send(chunked(packer.compress(b"two\n") + packer.flush()) + b"0\r\n\r\n")

    with serving(handler) as server:
        lines = first(http(server.url)).lines()
        assert next(lines) == [b"one"]
        proceed.set()
        assert list(lines) == [[b"two"]]


@pytest.mark.parametrize("packed", [True, False])
def test_a_record_that_is_too_long_is_an_error_that_names_the_option(packed: bool) -> None:
    bomb = zlib.compressobj(9, wbits=31)
    data = bomb.compress(bytes(200 << 20)) + bomb.flush() if packed else b"x" * (5 << 20)
    encoding = {"Content_Encoding": "gzip"} if packed else {}
    with serving(lambda exchange: exchange.stream("x/y", data, **encoding)) as server:
        tracemalloc.start()
        try:
            with pytest.raises(HttpError, match=r"longer than 4194304 bytes.*'max_record_bytes'"):
                list(first(http(server.url, max_record_bytes=4 << 20)).lines())
            assert tracemalloc.get_traced_memory()[1] < 40 << 20
        finally:
            tracemalloc.stop()


def test_a_complete_line_that_is_too_long_is_an_error_too() -> None:
    with serving(lambda exchange: exchange.respond(body=b"ok\n" + b"x" * 101 + b"\nok\n")) as server:
        with pytest.raises(HttpError, match="max_record_bytes"):
            list(first(http(server.url, max_record_bytes=100)).lines())
        assert list(first(http(server.url, max_record_bytes=101)).lines()) == [[b"ok", b"x" * 101, b"ok"]]


@pytest.mark.parametrize(
    ("encoding", "why"), [("gzip", "cannot be decompressed"), ("br", "compressed as 'br'")]
)
def test_a_body_that_cannot_be_decompressed_is_an_error(encoding: str, why: str) -> None:
    def nonsense(exchange: Exchange) -> None:
        exchange.respond(body=b"\x1f\x8bnonsense", Content_Encoding=encoding)

    with serving(nonsense) as server, pytest.raises(HttpError, match=why):
        body(http(server.url))


def packed(packing: str, data: bytes) -> bytes:
    bare = zlib.compressobj(wbits=-15)
    return {
        "gzip": gzip.compress(data),
        "deflate": zlib.compress(data),
        "raw deflate": bare.compress(data) + bare.flush(),
    }[packing]


@pytest.mark.parametrize("framing", ["length", "chunks"])
@pytest.mark.parametrize("packing", ["gzip", "deflate", "raw deflate"])
@pytest.mark.parametrize("cut", [1, 3, 8, 200])
def test_compressed_data_that_is_cut_within_a_complete_response_is_requested_again(
    cut: int, packing: str, framing: str
) -> None:
    """As when a proxy has buffered a part of a response and gives it a length of its own."""
    data = packed(packing, TEXT)

    def respond(exchange: Exchange, data: bytes) -> None:
        encoding = packing.removeprefix("raw ")
        if framing == "length":
            exchange.respond(200, data, Content_Encoding=encoding)
        else:
            exchange.stream("x/y", data, Content_Encoding=encoding)

    with serving(lambda e: respond(e, data[:-cut]), lambda e: respond(e, data)) as server:
        connections = http(server.url, max_retries=1).connections()
        cut_off = next(connections)
        got = b"".join(cut_off.chunks())
        assert TEXT.startswith(got)
        assert not cut_off.complete
        assert "within its compressed data" in str(cut_off.failure)
        again = next(connections)
        assert b"".join(again.chunks()) == TEXT
        assert again.complete


def test_an_empty_body_is_complete_also_if_it_claims_to_be_compressed() -> None:
    with serving(lambda e: e.respond(200, b"", Content_Encoding="gzip")) as server:
        connection = first(http(server.url))
        assert list(connection.chunks()) == []
    assert connection.complete


@pytest.mark.parametrize("packing", ["gzip", "deflate", "raw deflate"])
@pytest.mark.parametrize("garbage", [b"garbage", b"\x1f", b"\x1fx", b"\0" * 10_000])
@pytest.mark.parametrize("split", [False, True])
def test_bytes_after_compressed_data_are_ignored_with_a_warning(
    split: bool, garbage: bytes, packing: str, caplog: pytest.LogCaptureFixture
) -> None:
    data = packed(packing, TEXT) + garbage
    parts = [bytes([byte]) for byte in data] if split else [data]
    encoding = packing.removeprefix("raw ")
    with serving(lambda e: e.stream("x/y", *parts, Content_Encoding=encoding)) as server:
        connection = first(http(server.url))
        assert b"".join(connection.chunks()) == TEXT
    assert connection.complete
    assert caplog.text.count("bytes after the end of the compressed data are ignored") == 1


def test_a_compression_beyond_all_that_servers_do_is_refused() -> None:
    bomb = zlib.compressobj(9, wbits=31)
    data = bomb.compress(b"\n" * (100 << 20)) + bomb.flush()
    with (
        serving(lambda e: e.respond(200, data, Content_Encoding="gzip")) as server,
        pytest.raises(HttpError, match="compressed by more than 200 : 1"),
    ):
        list(first(http(server.url)).lines())


def test_many_gzip_members_are_read_if_there_is_something_in_them() -> None:
    """Some servers compress each record on its own; thousands of empty ones are an attack."""
    record = gzip.compress(b"a record of some length\n")
    with serving(lambda e: e.respond(200, record * 20_000, Content_Encoding="gzip")) as server:
        assert sum(map(len, first(http(server.url)).lines())) == 20_000
    empty = gzip.compress(b"")
    with (
        serving(lambda e: e.respond(200, empty * 20_000, Content_Encoding="gzip")) as server,
        pytest.raises(HttpError, match="more than 10000 gzip members"),
    ):
        list(first(http(server.url)).lines())


@pytest.mark.parametrize("content", [b"0123456789abcdef", b"x" * 5000])
def test_gzip_members_take_time_that_grows_with_their_number(content: bytes) -> None:
    member = gzip.compress(content)
    assert_linear(lambda count: list(Decompressor().feed(member * count)), 500)


def test_close_ends_decompression() -> None:
    """Also of what has already arrived."""
    data = gzip.compress(bytes(30 << 20))
    with serving(lambda e: e.respond(200, data, Content_Encoding="gzip")) as server:
        client = http(server.url)
        connection = first(client)
        chunks = connection.chunks()
        next(chunks)
        client.close()
        assert list(chunks) == []
    assert not connection.complete


@pytest.mark.parametrize(
    ("last", "counts"),
    [
        (b'{"n": 1}', True),
        (b"[1]", True),
        (b'"x" ', True),
        (b'{"n": ' + b"9" * 5000 + b"}", True),
        (b'{"n": "\xff"}', True),
        (b'{"n": 1', False),
        (b'{"n": "1}', False),
        (b"17", False),
        (b"true", False),
        (b"text", False),
        (b"{" * 100_000, False),
        (b"[" * 100_000 + b"]" * 100_000, False),
        (b" \t", None),
    ],
    ids=lambda value: repr(value[:12]) if isinstance(value, bytes) else None,
)
def test_a_last_line_without_a_line_break_counts_if_it_shows_that_it_is_complete(
    last: bytes, counts: bool | None
) -> None:
    with serving(lambda e: e.respond(200, b"one\n" + last)) as server:
        connection = first(http(server.url))
        lines = [line for lines in connection.lines() for line in lines]
    assert lines == ([b"one", last.strip()] if counts else [b"one"])
    assert connection.complete is (counts is not False)
    assert connection.unfinished == (last if counts is False else b"")


def test_a_response_that_ends_within_a_line_is_requested_again(caplog: pytest.LogCaptureFixture) -> None:
    with serving(lambda e: e.respond(200, b"one\nt\x1bw"), lambda e: e.respond(200, b"two\n")) as server:
        connections = http(server.url).connections()
        got = [
            line for connection in islice(connections, 2) for lines in connection.lines() for line in lines
        ]
    assert got == [b"one", b"two"]
    assert r"the response ends within a line: t\x1bw; retrying" in caplog.text


@pytest.mark.parametrize(
    "kind", ["text/html", "Text/HTML; charset=utf-8", "application/xhtml+xml", "image/png"]
)
def test_lines_of_html_or_an_image_are_refused(kind: str) -> None:
    with serving(lambda e: e.respond(200, b"<html>\nLog in\n", Content_Type=kind)) as server:
        refused = kind.partition(";")[0].lower()
        with pytest.raises(HttpError, match=f"the content type of the response is '{re.escape(refused)}'"):
            list(first(http(server.url)).lines())
        assert body(http(server.url)) == b"<html>\nLog in\n"


@pytest.mark.parametrize("kind", ["text/plain", "application/octet-stream", "application/json", "x", ""])
def test_lines_of_other_types_are_read(kind: str) -> None:
    with serving(lambda e: e.respond(200, b"one\n", Content_Type=kind)) as server:
        assert list(first(http(server.url)).lines()) == [[b"one"]]


def forever(start: bytes, again: bytes) -> Callable[[Exchange], None]:
    def handler(exchange: Exchange) -> None:
        exchange.send(start)
        while not exchange.closing.is_set():
            exchange.send(again * 1000)

    return handler


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("start", "again"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 100 Continue\r\n", b"A: b\r\n"),
        (b"HTTP/1.1 100 Continue\r\n", b"a"),
        (b"", b"a"),
        (OK, b"A: b\r\n"),
        (OK, b" folded\r\n"),
        (OK, b"a"),
    ],
)
def test_headers_without_an_end_are_an_error(start: bytes, again: bytes) -> None:
    with serving(forever(start, again)) as server, pytest.raises(HttpError, match="not HTTP"):
        first(http(server.url, max_retries=0))


@pytest.mark.parametrize(
    ("start", "again"),
    [(b"3\r\nabc\r\n0\r\n", b"A: b\r\n"), (b"3\r\nabc\r\n", b"1"), (b"3\r\nabc\r\n4;", b"x")],
    ids=["trailers", "a size", "an extension"],
)
def test_chunks_and_trailers_without_an_end_cut_the_response_off(start: bytes, again: bytes) -> None:
    with serving(forever(CHUNKED + start, again)) as server:
        connection = first(http(server.url))
        assert b"".join(connection.chunks()) == b"abc"
    assert not connection.complete


@pytest.mark.parametrize("step", [1, 1 << 20])
@pytest.mark.parametrize(
    "data", [b"1\r\nx\r\n", b"1;" + b"y" * 1000 + b"\r\nx\r\n", b"400\r\n" + b"z" * 1024 + b"\r\n"]
)
def test_chunks_take_time_that_grows_with_their_size(data: bytes, step: int) -> None:
    def decode(size: int) -> None:
        chunks = data * (size // len(data))
        decoder = ChunkDecoder()
        for start in range(0, len(chunks), step):
            decoder.feed(chunks[start : start + step])
        assert decoder.failure is None

    assert_linear(decode, 20_000)


def end_well(exchange: Exchange) -> None:
    exchange.stream("x/y", b"a\r\nb\n\n \n[3]")


def end_cut(exchange: Exchange) -> None:
    exchange.stream("x/y", b"a\r\nb\n\n \n[3]", end=False)


def end_short(exchange: Exchange) -> None:
    exchange.send_headers(Content_Length="100")
    exchange.send(b"a\r\nb\n\n \n[3]")


def end_unframed(exchange: Exchange) -> None:
    exchange.send_headers(Connection="close")
    exchange.send(b"a\r\nb\n\n \n[3]")


def end_with_garbage(exchange: Exchange) -> None:
    exchange.stream("x/y", b"a\r\nb\n\n \n[3]", end=False)
    exchange.send(b"nonsense\r\n")


@pytest.mark.parametrize("end", [end_well, end_cut, end_short, end_unframed, end_with_garbage])
def test_a_last_line_without_a_line_break_counts_only_if_the_body_is_complete(
    end: Callable[[Exchange], None],
) -> None:
    with serving(end) as server:
        connection = first(http(server.url))
        lines = [line for lines in connection.lines() for line in lines]
    assert lines == [b"a", b"b", b"[3]"][: 3 if end is end_well else 2]
    assert connection.complete is (end is end_well)


def test_bytes_after_the_end_of_a_body_are_not_read() -> None:
    def handler(exchange: Exchange) -> None:
        exchange.send_headers(Content_Length="10")
        for part in (b"one\ntw", b"o\n..trailing\n"):
            exchange.send(part)
            assert steps.acquire(timeout=10)

    steps = threading.Semaphore(0)
    with serving(handler) as server:
        connection = first(http(server.url))
        chunks = connection.chunks()
        got = next(chunks)
        steps.release(2)
        assert got + b"".join(chunks) == b"one\ntwo\n.."
    assert connection.complete


def test_a_gzip_member_that_ends_at_the_limit_of_one_piece_comes_once() -> None:
    """urllib3's own decoder, as of 2.8, repeats it for ever."""
    members = [b"a" * (1 << 20), b"b" * (1 << 21), b"c"]
    data = b"".join(map(gzip.compress, members))
    with serving(lambda exchange: exchange.respond(body=data, Content_Encoding="gzip")) as server:
        assert b"".join(islice(first(http(server.url)).chunks(), 10)) == b"".join(members)


def test_chunks_that_have_arrived_are_returned_together() -> None:
    """However small they are: a reader that is behind must not be slower than one that is not."""

    def handler(exchange: Exchange) -> None:
        exchange.stream("x/y", b"first\n", end=False)
        exchange.send(b"".join(chunked(b"%d\n" % n) for n in range(1000)))
        sent.set()
        exchange.send(b"0\r\n\r\n")

    sent = threading.Event()
    with serving(handler) as server:
        chunks = first(http(server.url)).chunks()
        got = [next(chunks)]
        assert sent.wait(10)
        got += chunks
    assert b"".join(got) == b"first\n" + b"".join(b"%d\n" % n for n in range(1000))
    assert len(got) <= 3


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_chunks_are_decoded_wherever_they_are_split(step: int) -> None:
    data = (
        b"".join(chunked(b"x" * n) for n in (1, 2, 3, 200)) + b"1;name=value\r\ny\r\n0\r\nTrailer: z\r\n\r\n"
    )
    decoder = ChunkDecoder()
    got = b"".join(decoder.feed(data[at : at + step]) for at in range(0, len(data), step))
    assert got == b"x" * 206 + b"y"
    assert decoder.complete


# close() from another thread


@contextmanager
def reading(client: Http) -> Iterator[Callable[[], float]]:
    """Reads in a thread. Yields a function that closes the client and returns how long the end took."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            for connection in client.connections():
                list(connection.lines())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def close() -> float:
        begun = monotonic()
        client.close()
        thread.join(10)
        assert not thread.is_alive()
        return monotonic() - begun

    try:
        yield close
    finally:
        client.close()
        thread.join(10)
    assert failures == []


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("state", ["waiting for a response", "within the headers", "waiting for bytes"])
def test_close_ends_a_read(state: str, tls: bool, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = threading.Event()

    def handler(exchange: Exchange) -> None:
        if state == "within the headers":
            exchange.send(b"HTTP/1.1 200 OK\r\nContent-")
        elif state == "waiting for bytes":
            exchange.stream("x/y", b"one\ntw", end=False)
        waiting.set()
        exchange.hang()

    context = None
    if tls:
        file, context = certificate(folder)
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(file))
    with serving(handler, tls=context) as server, reading(http(server.url)) as close:
        assert waiting.wait(10)
        assert close() < 5


def test_close_ends_a_tls_handshake() -> None:
    silent = socket.create_server(("127.0.0.1", 0))
    with silent, reading(http(f"https://127.0.0.1:{silent.getsockname()[1]}/")) as close:
        connection, _ = silent.accept()
        with connection:
            assert connection.recv(1)  # of its hello
            assert close() < 5


@contextmanager
def full() -> Iterator[str]:
    """The URL of a listener whose queue is full: a connect gets no reply."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"


def test_close_ends_a_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    connecting = threading.Event()
    connect = CurrentSocket._connect

    def recording(*args: Any) -> None:
        connecting.set()
        connect(*args)

    monkeypatch.setattr(CurrentSocket, "_connect", recording)
    with full() as url, reading(http(url)) as close:
        assert connecting.wait(10)
        assert close() < 5


def test_a_connect_that_hangs_times_out() -> None:
    with full() as url, pytest.raises(HttpError, match="timed out"):
        first(http(url, max_retries=0, connect_timeout=timedelta(milliseconds=200)))


@pytest.mark.parametrize("source", [sse, ndjson, meetup_rsvp])
def test_connect_timeout_is_an_option_of_every_http_source(source: Any) -> None:
    with full() as url, pytest.raises(HttpError, match="timed out"):
        next(iter(source(url, max_retries=0, connect_timeout=timedelta(milliseconds=200))))


def test_close_ends_a_pause() -> None:
    with serving(status(503, Retry_After="500")) as server, reading(http(server.url)) as close:
        wait_until(lambda: bool(server.requests), lambda: server.requests)
        assert close() < 5
    assert len(server.requests) == 1


def test_after_close_nothing_is_requested() -> None:
    with serving(hello) as server:
        client = http(server.url)
        client.close()
        client.close()
        assert list(client.connections()) == []
    assert server.accepted == 0


def test_a_reader_that_stops_leaves_no_connection_behind() -> None:
    gone = threading.Event()

    def handler(exchange: Exchange) -> None:
        exchange.stream("x/y", b"one\n", end=False)
        exchange.hang()
        gone.set()

    with serving(handler) as server:
        connections = http(server.url).connections()
        assert next(next(connections).lines()) == [b"one"]
        connections.close()  # type: ignore[attr-defined]
        assert gone.wait(10)
