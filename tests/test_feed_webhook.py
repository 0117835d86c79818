"""The source `webhook`: an HTTP server in a feed, whose callers get a 200 when their rows are durable.

Imports private modules to test what no query can show in a fixed order: signatures that others have
published, and requests that arrive between two acknowledgements.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
from http_server import certificate
from processes import wait_until

import headwater as hw
from headwater.sim import BadRecord, BadSignature, Cut, CutMidRecord, Repeat, Reset, Stall, WebhookCallers
from headwater.sources import webhook
from headwater.sources.webhook_requests import RequestError, check_body, split_body
from headwater.sources.webhook_server import Inbox, Limits, Post
from headwater.spark import attach
from headwater.testing import RunningStream

Stream = Callable[..., RunningStream]
SECRET = "not-to-be-logged"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Hook:
    """A webhook that runs in a query, and a client of it."""

    def __init__(
        self, stream: Stream, checkpoint: Path | None, options: dict[str, Any], **source: Any
    ) -> None:
        self.port = free_port()
        if source.get("decode", "json") == "json":
            source = {"decode": "json", "schema": "id LONG, total DOUBLE", **source}
        self.certificate = source.get("tls_cert")
        self.query = stream(webhook(port=self.port, **source), checkpoint=checkpoint, timeout=240, **options)

    def url(self, path: str = "/") -> str:
        return f"{'https' if self.certificate else 'http'}://127.0.0.1:{self.port}{path}"

    def ready(self) -> Hook:
        def is_ready() -> bool:
            assert self.query.query.exception() is None, self.query.query.exception()
            try:
                return self.health().status_code == 200
            except requests.ConnectionError:
                return False

        wait_until(is_ready, lambda: self.query.query.status, timeout=240)
        return self

    def health(self) -> requests.Response:
        return requests.get(self.url("/healthz"), timeout=60, verify=self.certificate)

    def post(
        self, json: Any = None, *, path: str = "/", key: str | None = None, **more: Any
    ) -> requests.Response:
        headers = {**more.pop("headers", {}), **({} if key is None else {"Idempotency-Key": key})}
        more = {"json": json, "headers": headers, "timeout": 120, "verify": self.certificate, **more}
        return requests.post(self.url(path), **more)

    def send(self, body: bytes, content_type: str = "application/json", **more: Any) -> requests.Response:
        return self.post(data=body, headers={"Content-Type": content_type, **more})

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def ids(self, count: int) -> list[int]:
        return sorted(row.id for row in self.query.rows(count))


@pytest.fixture
def hook(stream: Stream, tmp_path: Path) -> Callable[..., Hook]:
    def start(options: dict[str, Any] | None = None, **source: Any) -> Hook:
        return Hook(stream, tmp_path / "checkpoint", options or {}, **source).ready()

    return start


Start = Callable[..., Hook]


def order(n: int) -> dict[str, Any]:
    return {"id": n, "total": n / 2}


# 200, and no earlier


def test_a_post_gets_its_200_and_its_row_is_in_the_query(hook: Start) -> None:
    shop = hook()
    response = shop.post({"id": 1, "total": 9.5})
    assert (response.status_code, response.text) == (200, "ok\n")
    assert shop.query.rows(1) == [(1, 9.5)]


def test_rows_with_a_200_survive_a_kill_and_their_keys_too(hook: Start) -> None:
    shop = hook()
    assert shop.post(order(0), key="order-0").status_code == 200
    assert shop.ids(1) == [0]  # Spark itself does not survive a kill within its very first offset
    assert [shop.post(order(n), key=f"order-{n}").status_code for n in range(1, 5)] == [200] * 4
    shop.query.kill().restart()
    shop.ready()
    answers = [shop.post(order(n), key=f"order-{n}") for n in range(7)]
    assert [answer.status_code for answer in answers] == [200] * 7
    assert ["repeat" in answer.text for answer in answers] == [True] * 5 + [False] * 2
    assert shop.ids(7) == list(range(7))


def test_without_an_acknowledgement_there_is_no_200(hook: Start) -> None:
    shop = hook(request_timeout=timedelta(seconds=1))
    connection = attach.current()
    assert connection is not None
    connection[1].drop_acks(shop.query.query.name)
    response = shop.post(order(1), key="a")
    assert (response.status_code, response.headers["Retry-After"]) == (503, "1")
    assert "may be stored later: repeat it with the same key" in response.text
    wait_until(lambda: shop.health().status_code == 200, lambda: shop.health().text)  # nobody waits any more
    shop.query.restart()
    shop.ready()
    assert shop.post(order(1), key="a").status_code == 200
    assert shop.post(order(2), key="b").status_code == 200
    assert shop.ids(2) == [1, 2]


def test_a_key_of_an_earlier_feed_is_answered_when_its_rows_are_durable() -> None:
    """A feed that restarts resumes after the last cursor it has sent, whose rows may not be durable yet."""
    key = b"123456789"

    async def check() -> None:
        inbox = Inbox(Limits(1000, 10, None, 60), [key], wait_for_ack=True)
        inbox.attach(asyncio.get_running_loop())
        answer = asyncio.create_task(inbox.submit(Post([b"{}"], 2, key)))
        posts = await asyncio.to_thread(inbox.take)
        assert [(post.records, post.key) for post in posts] == [((), None)]  # no row of it is sent again
        inbox.sent(8, posts)
        inbox.acknowledge(7)
        assert not (await asyncio.wait([answer], timeout=0.2))[0]
        inbox.acknowledge(8)
        assert (await answer)[0] == 200
        assert await inbox.submit(Post([b"{}"], 2, key)) == await answer  # known from now on

    asyncio.run(check())


def test_a_repeat_waits_for_the_first_request() -> None:
    async def check() -> None:
        inbox = Inbox(Limits(1000, 10, None, 60), [], wait_for_ack=True)
        inbox.attach(asyncio.get_running_loop())
        answers = [asyncio.create_task(inbox.submit(Post([b"{}"], 2, b"same key!"))) for _ in range(3)]
        posts = await asyncio.to_thread(inbox.take)
        assert len(posts) == 1
        inbox.sent(1, posts)
        assert not (await asyncio.wait(answers, timeout=0.2))[0]
        inbox.acknowledge(1)
        assert [status for status, _ in await asyncio.gather(*answers)] == [200] * 3

    asyncio.run(check())


def test_many_clients_at_once_get_their_200_and_bad_requests_a_400(hook: Start) -> None:
    shop = hook()

    def post(n: int) -> int:
        return (shop.send(b'{"id": oops') if n % 3 == 0 else shop.post(order(n), key=str(n))).status_code

    with ThreadPoolExecutor(16) as clients:
        statuses = list(clients.map(post, range(300)))
    assert statuses == [400 if n % 3 == 0 else 200 for n in range(300)]
    assert shop.ids(200) == [n for n in range(300) if n % 3]


# Bodies


@pytest.mark.parametrize(
    ("body", "content_type", "ids"),
    [
        (b'{"id": 1}', "application/json", [1]),
        (b' \n{"id": 1, "total": 1e3}\n', "application/json; charset=utf-8", [1]),
        (b'[{"id": 1}, {"id": 2} ,\n{"id": 3}]', "application/json", [1, 2, 3]),
        (b"[ ]", "application/json", []),
        (b'[{"id": 1}]', "application/vnd.shop+json", [1]),
        (b'{"id": 1}\r\n\n{"id": 2}\n{"id": 3}', "application/x-ndjson", [1, 2, 3]),
        (b"id=1&total=2.5", "application/x-www-form-urlencoded", [1]),
        (b"payload=%7B%22id%22%3A+1%7D", "application/x-www-form-urlencoded", [1]),
        (b'{"id": 1}', "application/x-www-form-urlencoded", [1]),  # curl -d
        (b'{"id": 1}', "", [1]),
        (b'[{"id": 1}]', "text/plain", [1]),
    ],
)
def test_records_of_a_body(body: bytes, content_type: str, ids: list[int]) -> None:
    records = split_body(body, content_type, "auto", default="json")
    assert [json.loads(record)["id"] for record in records] == ids


def test_elements_of_an_array_keep_their_digits_and_forms_the_type_of_their_column() -> None:
    numbers = b'[{"a": 0.1000000000000000055511151231257827}, {"b": 12345678901234567890123}]'
    assert split_body(numbers, "application/json", "auto", default="json") == [
        b'{"a": 0.1000000000000000055511151231257827}',
        b'{"b": 12345678901234567890123}',
    ]
    form = split_body(b"zip=01234&n=5&tag=a&tag=b&x=%C3%A4", "", "form", default="json", strings={"zip"})
    assert json.loads(form[0]) == {"zip": "01234", "n": 5, "tag": ["a", "b"], "x": "ä"}


@pytest.mark.parametrize(
    ("body", "content_type", "status", "message"),
    [
        (b"", "application/json", 400, "the body is empty"),
        (b"\xff[", "application/json", 400, "not in UTF-8"),
        (b'[{"id": 1}', "application/json", 400, "expected , or ]"),
        (b'[{"id": 1}] x', "application/json", 400, "more follows the array"),
        (b"[{]", "application/json", 400, "not valid JSON"),
        (b"[" * 100_000, "application/json", 400, "nested too deep"),
        (b"no form", "application/x-www-form-urlencoded", 400, "not a form"),
        (b"x", "multipart/form-data; boundary=a", 415, "multipart/form-data is not supported"),
    ],
)
def test_a_body_that_cannot_be_split(body: bytes, content_type: str, status: int, message: str) -> None:
    with pytest.raises(RequestError, match=message.replace("[", r"\[").replace("]", r"\]")) as error:
        split_body(body, content_type, "auto", default="json")
    assert error.value.status == status


def test_bad_requests_get_a_400_that_says_why_and_the_feed_goes_on(hook: Start) -> None:
    shop = hook(max_body_bytes=1000)
    bad = {
        b'{"id": "x"}': "field 'id': BIGINT accepts an integer",
        b'{"id": 1': "not valid JSON",
        b'[{"id": 1}, {"id": 2.5}]': "row 1",  # no part of a request is stored
        b"17": "not an object",
        b"": "the body is empty",
    }
    for body, message in bad.items():
        response = shop.send(body)
        assert (response.status_code, message in response.text) == (400, True), response.text
    large = shop.send(b" " * 1001)
    assert (large.status_code, large.text) == (413, "the body is larger than 1000 bytes\n")
    chunked = requests.post(shop.url(), data=iter([b" " * 600, b" " * 600]), timeout=60)
    assert chunked.status_code == 413
    assert shop.send(b"x", **{"Content-Encoding": "gzip"}).status_code == 415
    missing = shop.post({}, path="/nowhere")
    assert (missing.status_code, "send requests to /" in missing.text) == (404, True)
    wrong = requests.get(shop.url(), timeout=60)
    assert (wrong.status_code, wrong.headers["Allow"]) == (405, "POST, PUT")
    assert shop.post([order(8), order(9)]).status_code == 200
    assert requests.put(shop.url(), json=order(10), timeout=60).status_code == 200
    assert shop.ids(3) == [8, 9, 10]


def misfit(body: bytes) -> Any:
    """A decoder with a mistake: not every row has the column's type."""
    return [] if body == b"none" else [(len(body),), ("text" if body == b"bad" else 0,)]


def test_rows_of_an_own_decoder_that_do_not_fit_are_a_400(hook: Start) -> None:
    shop = hook(decode=f"{__name__}:misfit", schema="n LONG")
    bad = shop.send(b"bad", "text/plain")
    assert (bad.status_code, "row 1, field 'n'" in bad.text) == (400, True), bad.text
    assert shop.send(b"none", "text/plain").status_code == 200
    assert shop.send(b"good!", "text/plain").status_code == 200
    assert shop.query.rows(2) == [(5,), (0,)]


def test_text_is_the_body_and_metadata_says_where_it_came_from(hook: Start) -> None:
    source = {
        "decode": "text",
        "metadata": True,
        "paths": ["/a", "/b/c"],
        "keep_headers": ["X-Shop", "x-none"],
    }
    shop = hook(**source)
    assert shop.post(path="/a", data=b'["as it is"]', headers={"X-Shop": "7"}).status_code == 200
    assert requests.put(shop.url("/b/c?q=1"), data=b"", timeout=60).status_code == 200
    rows = sorted(shop.query.rows(2), key=lambda row: row.path)
    assert [(row.data, row.method, row.path, row.client, row.headers) for row in rows] == [
        ('["as it is"]', "POST", "/a", "127.0.0.1", {"x-shop": "7"}),
        ("", "PUT", "/b/c", "127.0.0.1", {}),
    ]
    assert all(row.arrived is not None for row in rows)


# Repeats


def test_the_last_thousand_keys_survive_a_restart_and_older_ones_do_not(hook: Start) -> None:
    shop = hook()
    with WebhookCallers(shop.url(), 7, 0, 1100, clients=8) as callers:
        wait_until(lambda: callers.wait(0.1), lambda: callers.requests, timeout=240)
    assert "repeat" in shop.post(order(0), key="7-0").text  # in memory the window is larger
    shop.query.restart()
    shop.ready()
    assert "repeat" in shop.post(order(1099), key="7-1099").text
    assert "repeat" not in shop.post(order(0), key="7-0").text
    assert shop.ids(1101) == [0, 0, *range(1, 1100)]


def test_the_key_may_be_in_a_header_of_your_choice(hook: Start) -> None:
    shop = hook(idempotency_header="X-GitHub-Delivery")
    for n in (1, 1, 2):
        assert shop.post(order(n), headers={"X-GitHub-Delivery": str(n)}).status_code == 200
    assert shop.ids(2) == [1, 2]


# Who may send


GITHUB = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
SLACK_BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&"
    b"channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&"
    b"response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F"
    b"96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)
SLACK = "a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"


def test_signatures_that_github_and_slack_have_published_are_right() -> None:
    headers = {"x-hub-signature-256": f"sha256={GITHUB}"}
    check_body("github", headers, b"Hello, World!", ["It's a Secret to Everybody"], 0, 0)
    headers = {"x-slack-request-timestamp": "1531420618", "x-slack-signature": f"v0={SLACK}"}
    check_body("slack", headers, SLACK_BODY, ["8f742231b10e8888abcd99yyyzzz85a5"], 1531420618 + 299, 300)


def stripe(time: int, body: bytes, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), f"{time}.".encode() + body, hashlib.sha256).hexdigest()


@pytest.mark.parametrize(
    ("kind", "headers", "message"),
    [
        ("github", {}, "x-hub-signature-256 with the signature is missing"),
        ("github", {"x-hub-signature-256": "sha256=00"}, "the signature is wrong"),
        ("github", {"x-hub-signature-256": "ä"}, "the signature is wrong"),
        ("stripe", {"stripe-signature": f"t=699,v1={stripe(699, b'x')}"}, "301 s old by this clock; 300 s"),
        ("stripe", {"stripe-signature": f"t=1301,v1={stripe(1301, b'x')}"}, "-301 s old"),
        ("stripe", {"stripe-signature": f"t=1000,v0={stripe(1000, b'x')}"}, "the signature is wrong"),
        ("stripe", {"stripe-signature": f"t=1000,v1={stripe(999, b'x')}"}, "the signature is wrong"),
        ("stripe", {"stripe-signature": f"v1={stripe(1000, b'x')}"}, "has no time"),
        ("slack", {"x-slack-signature": "v0=00"}, "x-slack-request-timestamp with the signature is missing"),
        ("slack", {"x-slack-signature": "v0=00", "x-slack-request-timestamp": "9" * 500}, "has no time"),
    ],
)
def test_a_wrong_signature_is_a_401(kind: str, headers: dict[str, str], message: str) -> None:
    with pytest.raises(RequestError, match=message) as error:
        check_body(kind, headers, b"x", [SECRET], 1000, 300)
    assert (error.value.status, SECRET in str(error.value)) == (401, False)


def test_one_secret_can_replace_another() -> None:
    both = f"t=1000,v1={'0' * 64},v1={stripe(1000, b'x', 'new')}"
    check_body("stripe", {"stripe-signature": both}, b"x", ["old", "new"], 1000, 300)


@pytest.mark.parametrize("verify", ["header", "basic", "github", "stripe", "slack"])
def test_only_those_who_know_the_secret_can_send(hook: Start, tmp_path: Path, verify: Any) -> None:
    file = tmp_path / "secret"
    file.write_text(f"user:{SECRET}\n")
    shop = hook(verify=verify, secret=f"file:{file}")
    faults = [BadSignature(0, times=3), BadRecord(5)]
    more: dict[str, Any] = {"clients": 2, "verify": verify, "secret": f"user:{SECRET}"}
    with WebhookCallers(shop.url(), 0, 0, 20, faults, **more) as callers:
        wait_until(lambda: callers.wait(0.1), lambda: callers.requests, timeout=240)
        assert sorted(callers.refused) == [400, 401, 401, 401]
        assert callers.answers == dict.fromkeys(range(20), 200)
    unsigned = shop.post(order(99))
    assert (unsigned.status_code, SECRET in unsigned.text) == (401, False)
    assert shop.ids(20) == list(range(20))


def test_tls(hook: Start, tmp_path: Path) -> None:
    file, _ = certificate(tmp_path)
    shop = hook(tls_cert=str(file), tls_key=str(file.with_suffix(".key")))
    assert shop.post(order(1)).status_code == 200
    with pytest.raises(requests.ConnectionError):
        requests.post(shop.url().replace("https", "http"), json=order(2), timeout=60)
    assert shop.ids(1) == [1]


def test_files_that_are_no_certificate_are_named(stream: Stream, tmp_path: Path) -> None:
    file = tmp_path / "empty.pem"
    file.touch()
    query = stream(webhook(free_port(), tls_cert=str(file), tls_key=str(file)), checkpoint=tmp_path / "c")
    assert f"source 'webhook' cannot use the files '{file}' and '{file}' for TLS" in query.failure()


# Back-pressure, limits, and callers that misbehave


def test_while_the_feed_is_paused_callers_get_a_503_in_time(hook: Start) -> None:
    shop = hook(request_timeout=timedelta(seconds=1), max_pending=2)
    shop.query.wait_for(lambda feeds: bool(feeds))[0].pause()
    first = shop.post(order(1), key="1")  # the feed waits with it
    assert (first.status_code, "may be stored later" in first.text) == (503, True)
    second = shop.post(order(2), key="2")
    assert (second.status_code, "it is not stored" in second.text) == (503, True)
    with ThreadPoolExecutor(6) as clients:
        others = list(clients.map(lambda n: shop.post(order(n), key=str(n)), range(3, 9)))
    assert {response.status_code for response in others} == {503}
    assert {response.headers["Retry-After"] for response in others} == {"1"}
    assert any("requests are waiting to become durable" in response.text for response in others)
    shop.query.feeds[0].resume()
    for n in range(1, 9):
        wait_until(lambda n=n: shop.post(order(n), key=str(n)).status_code == 200, lambda: shop.health().text)
    assert shop.ids(8) == list(range(1, 9))


def test_when_the_log_is_full_callers_get_a_503_and_nothing_is_lost(hook: Start) -> None:
    shop = hook({"log_bytes": "1k"}, request_timeout=timedelta(seconds=1))
    sink = shop.query._sink  # private: no other way to keep Spark from taking rows
    sink.hold()
    stored: list[int] = []
    for n in range(500):
        response = shop.post([order(n)] * 10, key=str(n))
        if response.status_code == 503:
            break
        stored.append(n)
    assert (response.status_code, response.headers.get("Retry-After")) == (503, "1"), response.text
    assert stored
    assert shop.post(order(999), key="999").status_code == 503
    sink.release()
    wait_until(lambda: shop.post([order(n)] * 10, key=str(n)).status_code == 200, lambda: shop.health().text)
    counts = Counter(row.id for row in shop.query.rows(10 * len(stored) + 10))
    counts.pop(999, None)  # it may have come meanwhile
    assert counts == dict.fromkeys([*stored, n], 10)


def test_health_says_when_rows_do_not_become_durable(hook: Start) -> None:
    shop = hook(request_timeout=timedelta(seconds=20))
    assert (shop.health().status_code, shop.health().text) == (200, "ok\n")
    shop.query.wait_for(lambda feeds: bool(feeds))[0].pause()
    with ThreadPoolExecutor(1) as client:
        answer = client.submit(shop.post, order(1))
        wait_until(lambda: shop.health().status_code == 503, lambda: shop.health().text)
        shop.query.feeds[0].resume()
        assert answer.result().status_code == 200
    assert shop.health().status_code == 200


def test_more_requests_per_second_than_allowed_get_a_429(hook: Start) -> None:
    shop = hook(max_requests_per_second=3)
    responses = [shop.post(order(n)) for n in range(12)]
    refused = [response for response in responses if response.status_code == 429]
    assert refused, [response.status_code for response in responses]
    assert refused[0].headers["Retry-After"] == "1"
    assert "more than 3 requests per second" in refused[0].text
    assert shop.ids(12 - len(refused)) == [n for n in range(12) if responses[n].status_code == 200]


def test_slow_and_silent_callers_are_cut_off(hook: Start) -> None:
    shop = hook(request_timeout=timedelta(seconds=1))
    with shop.connect() as slow, shop.connect() as silent, shop.connect() as second:
        slow.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{")
        response = slow.makefile("rb").read()
        assert b" 408 " in response
        assert b"the body has not arrived within 1 s" in response
        assert silent.recv(1) == b""
        second.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\nPOST / HTTP/1.1\r\nHost")
        with suppress(ConnectionResetError):
            while second.recv(1000):  # its second request does not end
                pass
    assert shop.post(order(1)).status_code == 200
    assert shop.ids(1) == [1]


def test_callers_with_faults_lose_and_repeat_nothing(hook: Start) -> None:
    shop = hook(request_timeout=timedelta(seconds=2))
    faults = [
        *(Cut(3, times=3), CutMidRecord(6, times=3), Reset(9, times=3), Stall(12, seconds=0.2)),
        *(Stall(15, seconds=4), Repeat(20, count=10, times=2), BadRecord(25, times=2)),
    ]
    with WebhookCallers(shop.url(), 0, 0, 100, faults, clients=4) as callers:
        wait_until(lambda: callers.wait(0.1), lambda: callers.requests, timeout=240)
        assert callers.answers == dict.fromkeys(range(100), 200)
        assert callers.refused == [400, 400]
        assert len(callers.faults_come) == sum(fault.times for fault in faults)
        assert shop.ids(100) == list(range(100))


def test_a_stop_answers_those_who_wait_and_leaves_no_thread(hook: Start) -> None:
    shop = hook(request_timeout=timedelta(seconds=20))
    shop.query.wait_for(lambda feeds: bool(feeds))[0].pause()
    with ThreadPoolExecutor(1) as client:
        answer = client.submit(shop.post, order(1))
        wait_until(lambda: shop.health().status_code == 503, lambda: shop.health().text)  # the request waits
        shop.query.stop()
        response = answer.result()
    assert (response.status_code, "the query is stopping" in response.text) == (503, True)
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if "feed-webhook" in name]
    assert shop.query.query.exception() is None


# What it refuses


@pytest.mark.parametrize("options", [{"durability": "memory"}, {}])
def test_without_durable_rows_it_refuses_to_run(stream: Stream, options: dict[str, Any]) -> None:
    query = stream(webhook(free_port()), **options)
    assert (
        "source 'webhook' answers a request when its rows are durable, and in this query they never are: it "
        "has no checkpointLocation, or durability is memory. Fix: set checkpointLocation on writeStream"
    ) in query.failure()


def test_with_ack_received_rows_may_be_in_memory(stream: Stream) -> None:
    shop = Hook(stream, None, {"durability": "memory"}, ack="received").ready()
    assert shop.post(order(1), key="a").status_code == 200
    assert "repeat" in shop.post(order(1), key="a").text
    assert shop.send(b"oops").status_code == 400
    assert shop.ids(1) == [1]


def test_it_has_one_feed(stream: Stream, tmp_path: Path) -> None:
    query = stream(webhook(free_port()), checkpoint=tmp_path, concurrency=2)
    assert "source 'webhook' has one port and one feed, and concurrency is 2" in query.failure()


def test_a_port_that_is_taken_is_named(stream: Stream, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = stream(webhook(port), checkpoint=tmp_path).failure()
    assert f"source 'webhook' cannot listen on 127.0.0.1, port {port}: Address already in use" in message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"port": 70000}, "option 'port' is 70000, it must be 0 to 65535"),
        ({"paths": ["/healthz"]}, "option 'paths' has '/healthz'"),
        ({"paths": ["a"]}, "option 'paths' has 'a', it must begin with /"),
        ({"paths": []}, "option 'paths' is"),
        ({"secret": "x"}, "options 'verify' and 'secret' go together, and 'verify' is missing"),
        ({"verify": "github"}, "options 'verify' and 'secret' go together, and 'secret' is missing"),
        ({"tls_cert": "x"}, "options 'tls_cert' and 'tls_key' go together, and 'tls_key' is missing"),
        ({"max_body_bytes": 1 << 30}, "option 'max_body_bytes' is 1073741824, it must be 1 to 33554432"),
        ({"request_timeout": timedelta(0)}, "option 'request_timeout' is 0s"),
        ({"verify": "basic", "secret": "x", "keep_headers": ["Authorization"]}, "which has the secret"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        webhook(**options)


def test_a_missing_library_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["headwater.sources.webhook"]  # the attribute of the package is the source
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(hw.HeadwaterError) as error:
        webhook()
    assert str(error.value) == (
        "source 'webhook' needs starlette and uvicorn. Fix: pip install 'headwater[webhook]'."
    )


class AckOn(hw.Source, name="webhook_test_ack_on", schema="moment STRING"):
    def read(self, since: Any) -> Iterator[Any]:
        yield hw.At(1, [(str(hw.ack_on()),)])

    def ack(self, cursor: Any) -> None:
        """Defined, so that the JVM calls it."""


def test_a_source_knows_when_it_is_acknowledged(stream: Stream, tmp_path: Path) -> None:
    options = {"durability": "memory", "ack_on": "commit"}
    assert stream(AckOn(), checkpoint=tmp_path).rows(1) == [("durable",)]
    assert stream(AckOn()).rows(1) == [("None",)]
    assert stream(AckOn(), durability="memory").rows(1) == [("None",)]
    assert stream(AckOn(), **options).rows(1) == [("commit",)]
    assert list(AckOn()) == [("None",)]


def test_its_cursor_is_a_number_and_hashes_of_keys(hook: Start) -> None:
    shop = hook()
    for n in range(3):
        shop.post(order(n), key="secret-looking key" if n else None)
    cursor = shop.query.wait_for(
        lambda feeds: feeds[0].cursor is not None and feeds[0].cursor["requests"] == 2
    )[0].cursor
    assert len(base64.b64decode(cursor["keys"])) == 9
    assert "secret" not in json.dumps(cursor)
