"""The HTTP server of a webhook, and the requests that it has not answered yet.

The server has a thread with an event loop. `Inbox` is what that thread shares with the feed's thread, which
takes requests from it, and with the thread that acknowledges cursors.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from time import monotonic
from typing import TYPE_CHECKING, Any

import headwater as hw
from headwater.sources.webhook_requests import RequestError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

__all__ = ["HEALTH_PATH", "Inbox", "Limits", "Post", "Server", "serving"]

_LOG = logging.getLogger("headwater.sources.webhook")

HEALTH_PATH = "/healthz"
_KEYS_IN_MEMORY = 100_000
_MAX_BODIES = 64 << 20  # bytes of all requests that are not answered
_MAX_TAKEN = 8 << 20  # bytes of the requests that are decoded together
_ENOUGH = 16  # requests that are sent together even if earlier ones are not durable yet
_MAX_CONNECTIONS = 512
_SWEEP_SECONDS = 0.25
_KEEP_ALIVE_SECONDS = 30

Headers = Mapping[str, str]
Outcome = tuple[int, str]
"""A status and the text of a response."""


@dataclass(frozen=True)
class Limits:
    """What the server accepts."""

    body: int
    pending: int
    rate: int | None
    timeout: float
    """Seconds, for the body to arrive, and then for its rows to be durable."""


@dataclass(eq=False)
class Post:
    """A request that is not answered yet, with all who wait for it: its sender, and those who repeat it."""

    records: Sequence[bytes]
    """Empty once they are sent: what waits must not use up the memory."""
    size: int
    key: bytes | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    waiters: list[asyncio.Future[Outcome]] = field(default_factory=list)
    is_taken: bool = False
    """By the feed's thread: from now on its rows may become durable at any time."""


def _key_hash(key: str) -> bytes:
    return blake2b(key.encode("utf-8", "surrogateescape"), digest_size=9).digest()


class Inbox:
    """Requests on their way to the log.

    The server's thread calls `submit`, `expire` and `close`. The feed's thread calls `take`, `sent` and
    `reject`. `acknowledge`, `stop` and `fail` may be called from any thread. Only `take` blocks.
    """

    def __init__(self, limits: Limits, known_keys: Iterable[bytes], *, wait_for_ack: bool) -> None:
        self._limits = limits
        self._wait_for_ack = wait_for_ack
        self._loop: asyncio.AbstractEventLoop | None = None
        # Used by the server's thread only.
        self._keys: OrderedDict[bytes, Post | None] = OrderedDict.fromkeys(known_keys)
        self._unconfirmed = set(self._keys)
        self._waiting: deque[tuple[float, asyncio.Future[Outcome], Post]] = deque()
        self._pending = 0
        self._bytes = 0
        # Shared, under the lock.
        self._changed = threading.Condition()
        self._posts: deque[Post] = deque()
        self._sent: deque[tuple[int, list[Post]]] = deque()
        self._is_closed = False
        self._failure: BaseException | None = None

    # The server's thread

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def reserve(self, size: int) -> None:
        """Room for the bytes of a body. RequestError if there is none."""
        if self._bytes + size > _MAX_BODIES:
            raise _busy("too many bytes are waiting to become durable")
        self._bytes += size

    def release(self, size: int) -> None:
        self._bytes -= size

    def check_room(self) -> None:
        if self._is_closed:
            raise _busy("the query is stopping")
        if self._pending >= self._limits.pending:
            raise _busy(f"{self._pending} requests are waiting to become durable")

    async def submit(self, post: Post) -> Outcome:
        """The outcome, once the rows are durable; RequestError if they are not within the time limit."""
        self.check_room()
        if post.key is not None and post.key in self._keys:
            earlier = self._keys[post.key]
            if earlier is not None:
                return await self._wait(earlier)
            if post.key not in self._unconfirmed:
                return _REPEAT
            # If the feed was restarted, its rows may still be on their way to the disk. A request without
            # rows follows them, and is durable no earlier.
            await self._wait(self._add(Post((), 0)))
            return _REPEAT
        return await self._wait(self._add(post))

    def _add(self, post: Post) -> Post:
        self._pending += 1
        if post.key is not None:
            self._keys[post.key] = post
        with self._changed:
            self._posts.append(post)
            self._changed.notify()
        return post

    async def _wait(self, post: Post) -> Outcome:
        waiter: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        post.waiters.append(waiter)
        self._waiting.append((monotonic() + self._limits.timeout, waiter, post))
        return await waiter

    def expire(self, now: float) -> None:
        """Answer those who have waited too long. A request that the feed has not taken is withdrawn."""
        while self._waiting and (self._waiting[0][1].done() or self._waiting[0][0] <= now):
            _, waiter, post = self._waiting.popleft()
            if waiter.done():
                continue
            post.waiters.remove(waiter)
            if not post.waiters and self._withdraw(post):
                self._finish(post, None)
                message = "the feed is held back, and has not taken the request: it is not stored"
            else:
                message = "the rows are not durable yet, and may be stored later: repeat it with the same key"
            waiter.set_result((503, message))

    def _withdraw(self, post: Post) -> bool:
        with self._changed:
            if post.is_taken:
                return False
            self._posts.remove(post)
            return True

    @property
    def is_late(self) -> bool:
        """Whether a request has waited for half of the time that it may."""
        while self._waiting and self._waiting[0][1].done():
            self._waiting.popleft()
        return bool(self._waiting) and self._waiting[0][0] - monotonic() < self._limits.timeout / 2

    def close(self) -> None:
        """Answer all who wait. In the server's thread, or when it has ended."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for _, waiter, _ in self._waiting:
            if not waiter.done():
                waiter.set_result((503, "the query is stopping, and the rows may be stored: repeat it later"))

    def _finish(self, post: Post, outcome: Outcome | None) -> None:
        """It is stored if the status is 200, and else as if it had never come."""
        self._pending -= 1
        if post.key is not None:
            if outcome is not None and outcome[0] == 200:
                self._keys[post.key] = None
                while len(self._keys) > _KEYS_IN_MEMORY:
                    self._unconfirmed.discard(self._keys.popitem(last=False)[0])
            else:
                self._keys.pop(post.key, None)
        for waiter in post.waiters:
            if outcome is not None and not waiter.done():
                waiter.set_result(outcome)

    def _finish_durable(self, posts: list[Post]) -> None:
        self._unconfirmed.clear()
        for post in posts:
            self._finish(post, _STORED)

    # Other threads

    def take(self) -> list[Post]:
        """The requests that have arrived. Blocks until there is one; empty when the inbox is closed.

        A few requests wait for others while earlier ones are not durable: they share one sync of the log.
        """

        def is_ready() -> bool:
            has_posts = bool(self._posts) and (not self._sent or len(self._posts) >= _ENOUGH)
            return has_posts or self._is_closed or self._failure is not None

        with self._changed:
            self._changed.wait_for(is_ready)
            if self._failure is not None:
                raise self._failure
            posts: list[Post] = []
            size = 0
            while self._posts and not self._is_closed and size <= _MAX_TAKEN:
                post = self._posts.popleft()
                post.is_taken = True
                size += post.size
                posts.append(post)
            return posts

    def sent(self, number: int, posts: list[Post]) -> None:
        """These requests will be durable when `number` is acknowledged."""
        for post in posts:
            post.records = ()
        if self._wait_for_ack:
            with self._changed:
                self._sent.append((number, posts))
        else:
            self._call(self._finish_durable, posts)

    def acknowledge(self, number: int) -> None:
        posts: list[Post] = []
        with self._changed:
            while self._sent and self._sent[0][0] <= number:
                posts += self._sent.popleft()[1]
            self._changed.notify()
        self._call(self._finish_durable, posts)

    def reject(self, post: Post, status: int, message: str) -> None:
        self._call(self._finish, post, (status, message))

    def stop(self) -> None:
        """Close it, from any thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._call(self.close)

    def fail(self, error: BaseException) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def _call(self, function: Callable[..., None], *args: Any) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
                self._loop.call_soon_threadsafe(function, *args)


_STORED: Outcome = (200, "ok\n")
_REPEAT: Outcome = (200, "ok: a repeat of an earlier request\n")


def _busy(reason: str) -> RequestError:
    return RequestError(503, f"{reason}; try again", Retry_After="1")


# HTTP


class Server:
    """Answers requests, in the server's thread.

    `verify_headers` and `verify_body` raise RequestError, `records` makes the records of a body, and
    `metadata` the metadata columns of a request. Names of headers are in lower case.
    """

    def __init__(
        self,
        inbox: Inbox,
        limits: Limits,
        paths: Sequence[str],
        key_header: str,
        verify_headers: Callable[[Headers], None],
        verify_body: Callable[[Headers, bytes], None],
        records: Callable[[bytes, str], list[bytes]],
        metadata: Callable[[Scope, Headers], Mapping[str, Any]],
    ) -> None:
        from starlette.applications import Starlette
        from starlette.responses import PlainTextResponse
        from starlette.routing import Route

        self.inbox = inbox
        self.limits = limits
        self._paths = paths
        self._key_header = key_header
        self._verify_headers = verify_headers
        self._verify_body = verify_body
        self._records = records
        self._metadata = metadata
        self._rate = _Rate(limits.rate)
        self._reading: dict[asyncio.Task[Any], float] = {}
        self._new_response = PlainTextResponse
        self._stored = PlainTextResponse(_STORED[1])
        routes = [Route(path, _Endpoint(self._post), methods=["POST", "PUT"]) for path in paths]
        health = Route(HEALTH_PATH, self._health, methods=["GET"])
        self.app = Starlette(
            routes=[*routes, health], exception_handlers={404: self._not_found, 405: self._wrong_method}
        )

    def expire(self, now: float) -> None:
        """End requests that take too long."""
        self.inbox.expire(now)
        for task, deadline in list(self._reading.items()):
            if deadline <= now:
                task.cancel()

    async def _post(self, scope: Scope, receive: Receive) -> Response:
        size = 0
        try:
            self._rate.take()
            self.inbox.check_room()
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            self._verify_headers(headers)
            if headers.get("content-encoding", "identity").lower() != "identity":
                raise RequestError(
                    415, f"the content encoding {headers['content-encoding']} is not supported"
                )
            metadata = self._metadata(scope, headers)
            body = await self._body(headers, receive)
            size = len(body)
            self._verify_body(headers, body)
            records = self._records(body, headers.get("content-type", ""))
            key = headers.get(self._key_header)
            post = Post(records, size, None if key is None else _key_hash(key), metadata)
            outcome = await self.inbox.submit(post)
            if outcome is _STORED:
                return self._stored
            status, text = outcome
            return self._response(status, text, {"Retry-After": "1"} if status == 503 else {})
        except RequestError as error:
            return self._response(error.status, str(error), error.headers)
        except hw.HeadwaterError as error:  # a secret that cannot be read just now
            _LOG.error("a request cannot be verified: %s", error)
            return self._response(503, "the request cannot be verified now; try again", {"Retry-After": "10"})
        finally:
            self.inbox.release(size)

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        """The body, for which room is reserved. RequestError if it is too large or too slow."""
        task = asyncio.current_task()
        assert task is not None
        declared = headers.get("content-length", "")
        if declared.isdigit() and int(declared) > self.limits.body:
            raise self._too_large()
        self._reading[task] = monotonic() + self.limits.timeout
        chunks: list[bytes] = []
        size, more = 0, True
        try:
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise RequestError(400, "the caller has disconnected")
                chunk, more = message.get("body", b""), message.get("more_body", False)
                if size + len(chunk) > self.limits.body:
                    raise self._too_large()
                self.inbox.reserve(len(chunk))
                size += len(chunk)
                chunks.append(chunk)
        except BaseException as error:
            self.inbox.release(size)
            if isinstance(error, asyncio.CancelledError) and self._reading[task] <= monotonic():
                reason = f"the body has not arrived within {self.limits.timeout:g} s"
                raise RequestError(408, reason, Connection="close") from None
            raise
        finally:
            del self._reading[task]
        return b"".join(chunks)

    def _too_large(self) -> RequestError:
        return RequestError(413, f"the body is larger than {self.limits.body} bytes")

    async def _health(self, request: Request) -> Response:
        try:
            self.inbox.check_room()
        except RequestError as error:
            return self._response(503, str(error), error.headers)
        if self.inbox.is_late:
            reason = "rows do not become durable: the feed is held back"
            return self._response(503, reason, {"Retry-After": "1"})
        return self._response(200, "ok", {})

    async def _not_found(self, request: Request, error: Exception) -> Response:
        paths = ", ".join(self._paths)
        return self._response(404, f"there is nothing at {request.url.path!r}; send requests to {paths}", {})

    async def _wrong_method(self, request: Request, error: Exception) -> Response:
        allowed = "GET" if request.url.path == HEALTH_PATH else "POST, PUT"
        message = f"the method {request.method} is not allowed here; use {allowed}"
        return self._response(405, message, {"Allow": allowed})

    def _response(self, status: int, text: str, headers: Mapping[str, str]) -> Response:
        return self._new_response(text if text.endswith("\n") else f"{text}\n", status, headers)


class _Endpoint:
    """An ASGI application. Starlette would wrap a function, which takes longer than this."""

    def __init__(self, respond: Callable[[Scope, Receive], Awaitable[Response]]) -> None:
        self._respond = respond

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._respond(scope, receive)
        await response(scope, receive, send)


class _Rate:
    """A token bucket: so many requests per second, and as many at once."""

    def __init__(self, per_second: int | None) -> None:
        self._per_second = per_second
        self._tokens = float(per_second or 0)
        self._at = monotonic()

    def take(self) -> None:
        if self._per_second is None:
            return
        now = monotonic()
        self._tokens = min(self._per_second, self._tokens + (now - self._at) * self._per_second)
        self._at = now
        if self._tokens < 1:
            message = f"more than {self._per_second} requests per second; try again"
            raise RequestError(429, message, Retry_After="1")
        self._tokens -= 1


@contextmanager
def serving(server: Server, listener: socket.socket, files: Mapping[str, str]) -> Iterator[None]:
    """Serves during the block, in a thread. `files` are those of TLS, as uvicorn names them.

    If the server fails, `Inbox.take` raises its error.
    """
    import uvicorn

    config = uvicorn.Config(
        server.app,
        http=_protocol(server.limits.timeout),
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=1,
        **files,  # type: ignore[arg-type]
    )
    config.load()  # reads the certificate
    web, inbox = uvicorn.Server(config), server.inbox

    async def run() -> None:
        inbox.attach(asyncio.get_running_loop())
        sweeper = asyncio.create_task(_sweep(server))
        try:
            await web.serve([listener])
        finally:
            sweeper.cancel()

    def run_thread() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:
            inbox.fail(error)

    thread = threading.Thread(target=run_thread, name=f"{threading.current_thread().name}-http", daemon=True)
    thread.start()
    try:
        yield
    finally:
        web.should_exit = True
        inbox.stop()
        thread.join()


async def _sweep(server: Server) -> None:
    while True:
        await asyncio.sleep(_SWEEP_SECONDS)
        server.expire(monotonic())


def _protocol(timeout: float) -> type[asyncio.Protocol]:
    """uvicorn's HTTP protocol, with limits on connections and on the time that headers take to arrive."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class BoundedProtocol(H11Protocol):
        _timed: object = False

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > _MAX_CONNECTIONS:
                transport.write(_TOO_MANY_CONNECTIONS)
                transport.close()
            else:
                self._expect_request()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._expect_request()

        def _expect_request(self) -> None:
            """If the next one has not begun: it must within the time limit, once a part of it is there."""
            last: Any = self.cycle
            if last is not self._timed and (last is None or last.response_complete):
                self._timed = last
                self.loop.call_later(timeout, self._close_if_late, last)

        def _close_if_late(self, last: object) -> None:
            if self.cycle is last and not self.transport.is_closing():
                self.transport.abort()

    return BoundedProtocol


_TOO_MANY_CONNECTIONS = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
)
