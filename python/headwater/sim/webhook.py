"""Callers of a webhook: they POST orders to a URL, each with an idempotency key, and retry."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import random
import socket
import struct
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, Literal
from urllib.parse import urlsplit

from headwater.sim.faults import (
    BadRecord,
    BadSignature,
    Cut,
    CutMidRecord,
    Fault,
    FaultPlan,
    Repeat,
    Reset,
    Stall,
    spellings,
)
from headwater.sim.timeline import Timeline
from headwater.sim.words import LAST_NAMES, PLACES

__all__ = ["CALLER_FAULTS", "WebhookCallers"]

CALLER_FAULTS: tuple[type[Fault], ...] = (Cut, CutMidRecord, Reset, Stall, Repeat, BadRecord, BadSignature)
"""The faults that callers have. `Cut` and `Reset` end a connection after the request, before its response."""

_TIMEOUT = 30.0
_RETRY_SECONDS = 0.2
_MAX_RETRY_SECONDS = 5.0


class WebhookCallers:
    """Callers that POST the records 0, 1, … to a URL, from `clients` connections at a time.

    Record n has the header `Idempotency-Key: SEED-n`. A caller repeats it until it has a response other than
    408, 429 and 5xx, also if the server is not there. Faults happen to the record that comes next: its
    request is cut, stalls, or comes after a wrong one, and then it is sent as it should be. `verify` and
    `secret` are those of the source `webhook`.

    They begin as soon as they are created; `wait()` returns when all records are answered, and `close()`, or
    the end of `with`, ends them at once.

    >>> from headwater.sim import WebhookCallers
    >>> with WebhookCallers("http://127.0.0.1:9/", count=0) as callers:
    ...     print(callers.wait(), callers.answers, callers.record(0)["id"])
    True {} 0
    """

    def __init__(
        self,
        url: str,
        seed: int = 0,
        rate: float = 50,
        count: int | None = None,
        faults: Sequence[Fault] = (),
        *,
        clients: int = 4,
        verify: Literal["none", "header", "basic", "github", "stripe", "slack"] = "none",
        secret: str = "",
    ) -> None:
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise ValueError(f"url is {url!r}, it must be a URL such as http://127.0.0.1:8080/")
        if not 1 <= clients <= 1000:
            raise ValueError(f"clients is {clients!r}, it must be 1 to 1000")
        for fault in faults:
            if not isinstance(fault, CALLER_FAULTS):
                raise ValueError(f"{fault} is not a fault of callers; those are: {', '.join(_spellings())}")
        if verify == "none" and any(isinstance(fault, BadSignature) for fault in faults):
            raise ValueError("the fault bad-signature needs a signature: set verify and a secret")
        self.url = url
        self.seed = seed
        self._verify, self._secret = verify, secret
        self._timeline = Timeline(rate, count, None)
        self._fault_plan = FaultPlan(faults)
        self._lock = threading.Lock()
        self._next = 0
        self._requests = 0
        self._answers: dict[int, int] = {}
        self._refused: list[int] = []
        self._closed = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, name=f"headwater-callers-{n}", daemon=True)
            for n in range(clients)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def answers(self) -> dict[int, int]:
        """The status that each record got at last, by its number."""
        with self._lock:
            return dict(self._answers)

    @property
    def refused(self) -> list[int]:
        """The statuses of requests that were wrong on purpose: `BadRecord` and `BadSignature`."""
        with self._lock:
            return list(self._refused)

    @property
    def requests(self) -> int:
        """How many requests were sent or tried."""
        with self._lock:
            return self._requests

    @property
    def faults_come(self) -> list[Fault]:
        """The faults that have happened, in order."""
        return self._fault_plan.happened

    def record(self, n: int) -> dict[str, Any]:
        """Record n: the same for the same seed."""
        dice = random.Random(f"{self.seed}/{n}")  # noqa: S311
        return {
            "id": n,
            "total": dice.randrange(100, 100_000) / 100,
            "customer": dice.choice(LAST_NAMES),
            "city": dice.choice(PLACES)[0],
        }

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until all records are answered, or for so many seconds. Returns whether they are."""
        deadline = None if timeout is None else time.monotonic() + timeout
        for thread in self._threads:
            thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def close(self) -> None:
        """Ends all callers. Leaves no thread behind."""
        self._closed.set()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> WebhookCallers:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _run(self) -> None:
        connection = _Connection(self.url)
        try:
            while not self._closed.is_set():
                with self._lock:
                    n, self._next = self._next, self._next + 1
                seconds = self._timeline.seconds_to(n)
                if seconds is None or self._closed.wait(seconds):
                    return
                body = self._body(n)
                while (fault := self._fault_plan.at_record(n, body)) is not None:
                    self._inject(fault, n, body, connection)
                self._post_until_answered(n, body, connection)
        finally:
            connection.close()

    def _body(self, n: int) -> bytes:
        return json.dumps(self.record(n), ensure_ascii=False).encode()

    def _post_until_answered(self, n: int, body: bytes, connection: _Connection) -> None:
        while not self._closed.is_set():
            status, retry_after = self._post(n, body, connection)
            if status is not None and status < 500 and status not in (408, 429):
                with self._lock:
                    self._answers[n] = status
                return
            self._closed.wait(min(retry_after, _MAX_RETRY_SECONDS))

    def _post(self, n: int, body: bytes, connection: _Connection) -> tuple[int | None, float]:
        """The status, None if there is no response, and the seconds to wait before a retry."""
        with self._lock:
            self._requests += 1
        try:
            response = connection.post(body, self._headers(n, body))
        except (OSError, HTTPException):
            connection.close()
            return None, _RETRY_SECONDS
        retry_after = response.getheader("Retry-After", "")
        return response.status, float(retry_after) if retry_after.isdigit() else _RETRY_SECONDS

    def _headers(self, n: int, body: bytes) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Idempotency-Key": f"{self.seed}-{n}"}
        return headers | _signature(self._verify, self._secret, body)

    def _inject(self, fault: Fault, n: int, body: bytes, connection: _Connection) -> None:
        """Before record n. Of a wrong request the status is recorded, and of the others nothing."""
        with suppress(OSError, HTTPException):
            if isinstance(fault, Repeat):
                for earlier in range(max(0, n - fault.count), n):
                    self._post(earlier, self._body(earlier), connection)
            elif isinstance(fault, BadRecord):
                bad = body[:-5]
                self._record_refused(connection.post(bad, self._headers(-1, bad)))
            elif isinstance(fault, BadSignature):
                headers = self._headers(-1, body) | _signature(self._verify, f"not {self._secret}", body)
                self._record_refused(connection.post(body, headers))
            elif isinstance(fault, Stall):
                connection.send_slowly(body, self._headers(n, body), lambda: self._closed.wait(fault.seconds))
            else:
                end = len(body) // 2 if isinstance(fault, CutMidRecord) else len(body)
                connection.send_and_close(body, self._headers(n, body), end, reset=isinstance(fault, Reset))
            return
        connection.close()

    def _record_refused(self, response: HTTPResponse) -> None:
        with self._lock:
            self._refused.append(response.status)


class _Connection:
    """A connection that is kept open for the next request."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        connection = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._http: HTTPConnection = connection(parts.hostname or "", parts.port, timeout=_TIMEOUT)
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    def post(self, body: bytes, headers: dict[str, str]) -> HTTPResponse:
        self._http.request("POST", self._path, body, headers)
        return self._read()

    def send_slowly(self, body: bytes, headers: dict[str, str], pause: Any) -> None:
        self._send_head(body, headers)
        self._http.send(body[: len(body) // 2])
        pause()
        self._http.send(body[len(body) // 2 :])
        self._read()

    def send_and_close(self, body: bytes, headers: dict[str, str], end: int, *, reset: bool) -> None:
        self._send_head(body, headers)
        self._http.send(body[:end])
        if reset:
            linger = struct.pack("ii", 1, 0)  # closing sends RST instead of FIN
            self._http.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.close()

    def close(self) -> None:
        self._http.close()

    def _send_head(self, body: bytes, headers: dict[str, str]) -> None:
        self._http.putrequest("POST", self._path)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self._http.putheader(name, value)
        self._http.endheaders()

    def _read(self) -> HTTPResponse:
        response = self._http.getresponse()
        response.read()
        return response


def _signature(verify: str, secret: str, body: bytes) -> dict[str, str]:
    """The headers that prove that a request comes from somebody who knows the secret."""
    now = str(int(time.time()))

    def digest(signed: bytes) -> str:
        return hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()

    if verify == "header":
        return {"X-Webhook-Secret": secret}
    if verify == "basic":
        return {"Authorization": f"Basic {base64.b64encode(secret.encode()).decode()}"}
    if verify == "github":
        return {"X-Hub-Signature-256": f"sha256={digest(body)}"}
    if verify == "stripe":
        return {"Stripe-Signature": f"t={now},v1={digest(f'{now}.'.encode() + body)}"}
    if verify == "slack":
        signed = f"v0:{now}:".encode() + body
        return {"X-Slack-Request-Timestamp": now, "X-Slack-Signature": f"v0={digest(signed)}"}
    return {}


def _spellings() -> list[str]:
    return spellings(CALLER_FAULTS)
