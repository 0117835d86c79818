"""An HTTP server: what others send to it are the rows."""

from __future__ import annotations

import base64
import json
import logging
import socket
import ssl
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from importlib.util import find_spec
from ipaddress import ip_address
from time import time
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import SplitResult, unquote

import headwater as hw
from headwater import trust
from headwater.decode import decoder
from headwater.sources.webhook_requests import HEADER_CHECKS, check_body, check_headers, split_body
from headwater.sources.webhook_server import HEALTH_PATH, Inbox, Limits, Post, Server, serving

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["webhook"]

_LOG = logging.getLogger("headwater.sources.webhook")
_METADATA = "method STRING, path STRING, client STRING, arrived TIMESTAMP, headers MAP<STRING, STRING>"
_KEYS_IN_CURSOR, _KEY_BYTES = 1000, 9
_MAX_BODY_BYTES = 32 << 20
_MAX_TABLE_BYTES = 48 << 20  # decoded: a short text may stand for many values, and a row may have 64 MiB


class Webhook(hw.Source, name="webhook", schemes="webhook"):
    """Listens for HTTP requests. A POST gets its 200 when its rows are durable: in the log, on disk.

    `decode` and `schema` turn records into columns, as for `sse`. `body` says which records a body has:
    `json` (an object, or an array of them), `ndjson`, `form`, `raw`; `auto` goes by the content type.
    `metadata` adds the columns method, path, client, arrived and headers: those that `keep_headers` names.

    `verify` is how callers prove who they are: `header` (the secret in `secret_header`), `basic`, or a
    signature as `github`, `stripe` or `slack` make it. Each line of `secret` is valid, so that one can
    replace another. Of requests with the same `idempotency_header` only the first is stored.

    >>> print(webhook(8081, verify="github", secret="abc", decode="json", schema="action STRING"))
    webhook(port=8081, decode='json', schema='action STRING', verify='github', secret=***)
    """

    def __init__(
        self,
        port: int = 8080,
        host: str = "127.0.0.1",
        paths: list[str] = ["/"],  # noqa: B006  # options are copied
        decode: str = "text",
        schema: str | None = None,
        body: Literal["auto", "json", "ndjson", "form", "raw"] = "auto",
        metadata: bool = False,
        keep_headers: list[str] = [],  # noqa: B006
        verify: Literal["none", "header", "basic", "github", "stripe", "slack"] = "none",
        secret: hw.Secret | None = None,
        secret_header: str = "X-Webhook-Secret",  # noqa: S107
        signature_tolerance: timedelta = timedelta(minutes=5),
        idempotency_header: str = "Idempotency-Key",
        ack: Literal["durable", "received"] = "durable",
        tls_cert: str | None = None,
        tls_key: str | None = None,
        max_body_bytes: int = 1 << 20,
        max_pending: int = 1000,
        max_requests_per_second: int | None = None,
        request_timeout: timedelta = timedelta(seconds=10),
    ) -> None:
        _check_library()
        _check_range("port", port, 0, 65535)
        _check_range("max_body_bytes", max_body_bytes, 1, _MAX_BODY_BYTES)
        _check_range("max_pending", max_pending, 1, 100_000)
        if max_requests_per_second is not None:
            _check_range("max_requests_per_second", max_requests_per_second, 1, 1_000_000)
        if not request_timeout:
            raise ValueError("option 'request_timeout' is 0s, it must be longer")
        _check_paths(paths)
        if (verify == "none") != (secret is None):
            missing = "secret" if secret is None else "verify"
            raise ValueError(f"options 'verify' and 'secret' go together, and {missing!r} is missing")
        if (tls_cert is None) != (tls_key is None):
            missing = "tls_cert" if tls_cert is None else "tls_key"
            raise ValueError(f"options 'tls_cert' and 'tls_key' go together, and {missing!r} is missing")
        self._keep_headers = [name.lower() for name in keep_headers]
        credentials = {"header": secret_header.lower(), "basic": "authorization"}.get(verify)
        if credentials in self._keep_headers:
            raise ValueError(
                f"option 'keep_headers' names {credentials!r}, which has the secret: leave it out"
            )
        self._address = host, port
        self._paths = paths
        self._decoder = decoder(decode, schema, beside=_METADATA if metadata else None)
        self._has_metadata = metadata
        # Text and bytes are taken as they come; of JSON, each object is a record.
        self._body_kind = "raw" if body == "auto" and decode in ("text", "binary") else body
        self._default_kind = "json" if decode == "json" else "raw"
        self._strings = {f.name for f in self._decoder.schema.fields if f.dataType.simpleString() == "string"}
        self._verify, self._secret, self._secret_header = verify, secret, secret_header.lower()
        self._tolerance = signature_tolerance.total_seconds()
        self._key_header = idempotency_header.lower()
        self._ack = ack
        self._tls = (tls_cert, tls_key)
        self._limits = Limits(
            max_body_bytes, max_pending, max_requests_per_second, request_timeout.total_seconds()
        )
        self._inbox: Inbox | None = None
        self._is_closed = False

    @property
    def schema(self) -> StructType:
        """The columns, which depend on `decode`, `schema` and `metadata`."""
        return self._decoder.schema

    @classmethod
    def uri_options(cls, uri: SplitResult, /) -> dict[str, str]:
        """`webhook://127.0.0.1:8080/orders` sets `host`, `port` and `paths`; each part may be left out."""
        options = {"host": uri.hostname or "", "port": "" if uri.port is None else str(uri.port)}
        if unquote(uri.path) not in ("", "/"):
            options["paths"] = json.dumps([unquote(uri.path)])
        return {name: value for name, value in options.items() if value}

    def read(self, since: Any) -> Iterator[Any]:
        """Yields the rows of all requests that have arrived, with a cursor of their number and last keys."""
        self._check_query()
        count, keys = _parse_cursor(since)
        inbox = Inbox(self._limits, keys, wait_for_ack=self._ack == "durable")
        server = Server(
            inbox,
            self._limits,
            self._paths,
            self._key_header,
            self._verify_headers,
            self._verify_body,
            self._records,
            self._metadata,
        )
        files = self._tls_files()
        self._inbox = inbox
        with self._listen() as listener, serving(server, listener, files):
            self._log_address(listener)
            if self._is_closed:
                return
            while posts := inbox.take():
                rows, posts = self._decode(posts, inbox)
                if posts:
                    count += len(posts)
                    keys.extend(post.key for post in posts if post.key is not None)
                    inbox.sent(count, posts)
                    yield hw.At(_cursor(count, keys), rows)
                    yield hw.CAUGHT_UP  # so that the rows are sent at once

    def ack(self, cursor: Any) -> None:
        """Answers the requests up to the cursor."""
        if self._inbox is not None:
            self._inbox.acknowledge(int(cursor["requests"]))

    def close(self) -> None:
        self._is_closed = True
        if self._inbox is not None:
            self._inbox.stop()

    # Starting

    def _check_query(self) -> None:
        if hw.shard().count > 1:
            raise hw.HeadwaterError(
                f"source 'webhook' has one port and one feed, and concurrency is {hw.shard().count}",
                "leave the option concurrency out",
            )
        if self._ack == "durable" and hw.ack_on() != "durable":
            raise hw.HeadwaterError(
                "source 'webhook' answers a request when its rows are durable, and in this query they never "
                "are: it has no checkpointLocation, or durability is memory",
                "set checkpointLocation on writeStream and leave durability out; or, if requests may be "
                "lost, set the option ack to received",
            )
        if self._secret is not None and not self._secrets():
            raise hw.HeadwaterError("the secret of source 'webhook' is empty", "set the option secret")

    def _listen(self) -> socket.socket:
        host, port = self._address
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            return socket.create_server((host, port), family=family, backlog=512)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise OSError(f"source 'webhook' cannot listen on {host}, port {port}: {reason}") from error

    def _tls_files(self) -> Mapping[str, str]:
        certificate, key = self._tls
        if certificate is None or key is None:
            return {}
        try:
            paths = [str(trust.current.file(path)) for path in (certificate, key)]
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*paths)
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            raise hw.HeadwaterError(
                f"source 'webhook' cannot use the files {certificate!r} and {key!r} for TLS: {error}",
                "set tls_cert and tls_key to PEM files, a certificate and its key, that the driver can read",
            ) from None
        return {"ssl_certfile": paths[0], "ssl_keyfile": paths[1]}

    def _log_address(self, listener: socket.socket) -> None:
        host, port = listener.getsockname()[:2]
        scheme = "http" if self._tls[0] is None else "https"
        _LOG.info("listening on %s://%s:%d", scheme, f"[{host}]" if ":" in host else host, port)
        if not ip_address(host.partition("%")[0]).is_loopback:
            if self._verify == "none":
                _LOG.warning("anybody who reaches %s can send rows: set the option verify", host)
            if self._tls[0] is None:
                _LOG.warning(
                    "requests to %s are not encrypted: set tls_cert and tls_key, or use a proxy", host
                )

    # In the server's thread

    def _secrets(self) -> list[str]:
        assert self._secret is not None
        return [line for line in self._secret.reveal().splitlines() if line]

    def _verify_headers(self, headers: Mapping[str, str]) -> None:
        if self._verify in HEADER_CHECKS:
            check_headers(self._verify, self._secret_header, headers, self._secrets())

    def _verify_body(self, headers: Mapping[str, str], body: bytes) -> None:
        if self._verify not in ("none", *HEADER_CHECKS):
            check_body(self._verify, headers, body, self._secrets(), time(), self._tolerance)

    def _records(self, body: bytes, content_type: str) -> list[bytes]:
        return split_body(
            body, content_type, self._body_kind, default=self._default_kind, strings=self._strings
        )

    def _metadata(self, scope: Mapping[str, Any], headers: Mapping[str, str]) -> Mapping[str, Any]:
        if not self._has_metadata:
            return {}
        return {
            "method": scope["method"],
            "path": scope["path"],
            "client": scope["client"][0] if scope["client"] else None,
            "arrived": datetime.now(timezone.utc),
            "headers": {name: headers[name] for name in self._keep_headers if name in headers},
        }

    # In the feed's thread

    def _decode(self, posts: list[Post], inbox: Inbox) -> tuple[Any, list[Post]]:
        """The rows of the requests whose records are all good, and these requests. Rejects the others."""
        try:
            table = self._table(posts)
            if len(posts) == 1 or table.nbytes <= _MAX_TABLE_BYTES:
                return self._checked(table), posts
        except ValueError as error:
            if len(posts) == 1:
                inbox.reject(posts[0], 400, f"the body is not what is expected here: {error}")
                return None, []
        good = [post for post in posts if self._decode([post], inbox)[1]]
        return (self._table(good) if good else None), good

    def _table(self, posts: list[Post]) -> Any:
        columns = {
            name: [post.metadata[name] for post in posts for _ in post.records]
            for name in (["method", "path", "client", "arrived", "headers"] if self._has_metadata else [])
        }
        return self._decoder.table([record for post in posts for record in post.records], **columns)

    def _checked(self, table: Any) -> Any:
        if table.nbytes > _MAX_TABLE_BYTES:
            raise ValueError(f"its rows have {table.nbytes:,} bytes; the limit is {_MAX_TABLE_BYTES:,}")
        return table


def _check_library() -> None:
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise hw.HeadwaterError(
            "source 'webhook' needs starlette and uvicorn", "pip install 'headwater[webhook]'"
        )


def _check_range(option: str, value: int, minimum: int, maximum: int) -> None:
    if not minimum <= value <= maximum:
        raise ValueError(f"option '{option}' is {value}, it must be {minimum} to {maximum}")


def _check_paths(paths: list[str]) -> None:
    for path in paths:
        if not path.startswith("/") or path == HEALTH_PATH or any(c in path for c in "{}?#"):
            raise ValueError(
                f"option 'paths' has {path!r}, it must begin with /, without any of {{}}?#, and not be "
                f"{HEALTH_PATH}"
            )
    if not paths or len(set(paths)) < len(paths):
        raise ValueError(f"option 'paths' is {paths}, it must have different paths, and at least one")


# The cursor: how many requests there were, and the hashes of their last keys, the oldest first


def _cursor(count: int, keys: deque[bytes]) -> Any:
    return {"requests": count, "keys": base64.b64encode(b"".join(keys)).decode("ascii")}


def _parse_cursor(cursor: Any) -> tuple[int, deque[bytes]]:
    keys: deque[bytes] = deque(maxlen=_KEYS_IN_CURSOR)
    if cursor is None:
        return 0, keys
    try:
        joined = base64.b64decode(cursor["keys"], validate=True)
        keys.extend(joined[at : at + _KEY_BYTES] for at in range(0, len(joined), _KEY_BYTES))
        return int(cursor["requests"]), keys
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            f"{str(cursor)[:80]!r} is not a cursor of source 'webhook': leave startCursor out"
        ) from None


webhook = Webhook
