"""What a simulator is asked, and what it answers: between the server and the protocols."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["Answer", "RefusedError", "Request"]


@dataclass(frozen=True)
class Request:
    """As it came: `path` without the query, names of headers in lower case."""

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Answer:
    """Records from number `start` on. `encode` gives one as it goes out, or nothing if it is not wanted."""

    content_type: str
    start: int
    encode: Callable[[int], bytes]
    bad: bytes
    greeting: bytes = b""
    keep_alive: bytes = b""


class RefusedError(Exception):
    """A request that gets no records."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
