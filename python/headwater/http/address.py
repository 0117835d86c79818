"""Which URLs may be asked, and which headers are sent where."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping
from urllib.parse import SplitResult, unquote_plus, urlencode, urlsplit

from headwater import Secret

__all__ = ["checked", "headers_of", "origin", "shown", "with_params"]

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PORTS = {"http": 80, "https": 443}
_OURS = ("accept-encoding", "connection", "content-length", "host", "te", "transfer-encoding")


def checked(url: str, *, allow_http: bool, what: str = "option 'url'") -> str:
    """The URL, if it may be asked; else a ValueError says why not."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{what} is no URL: {error}") from None
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"{what} holds a user or password, which logs would show: use option 'headers'")
    said = f"{what} is {shown(url)!r}"
    if parts.scheme not in _PORTS or not parts.hostname or port == 0 or re.search(r"[\s\x00-\x1f\\]", url):
        raise ValueError(f"{said}, it must be https://host/path, or http:// where that is allowed")
    if parts.scheme == "http" and not allow_http and not _is_loopback(parts.hostname):
        raise ValueError(
            f"{said}: http can be read and changed on its way. Use https, or set allow_http=true"
        )
    return url


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


def shown(url: str) -> str:
    """The URL without user, query and fragment, where people put tokens."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def origin(url: str) -> tuple[str, str, int]:
    parts: SplitResult = urlsplit(url)
    return parts.scheme, (parts.hostname or "").lower(), parts.port or _PORTS[parts.scheme]


def with_params(url: str, params: Mapping[str, str]) -> str:
    """The URL with these in its query, in place of those of the same name.

    >>> with_params("https://example.org/feed?since=1&all=yes", {"since": "7 8"})
    'https://example.org/feed?all=yes&since=7+8'
    """
    parts = urlsplit(url)
    given = [part for part in parts.query.split("&") if part]
    kept = [part for part in given if unquote_plus(part.partition("=")[0]) not in params]
    query = "&".join([*kept, urlencode(params)] if params else kept)
    return parts._replace(query=query, fragment="").geturl()


def headers_of(secret: Secret | None) -> dict[str, str]:
    """`Name: value` in each line, or a JSON object. Never shown: messages count lines instead.

    >>> headers_of(Secret("Authorization: Bearer abc"))
    {'Authorization': 'Bearer abc'}
    """
    text = "" if secret is None else secret.reveal().strip()
    if text.startswith("{"):
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
            raise ValueError("option 'headers' begins with { and is no JSON object of texts") from None
        pairs = list(found.items())
    else:
        lines = [line for line in text.splitlines() if line.strip()]
        pairs = [(name.strip(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    for number, (name, value) in enumerate(pairs, 1):
        if not _TOKEN.fullmatch(name) or not value or not value.isprintable() or not value.isascii():
            raise ValueError(f"option 'headers': number {number} is not Name: value, in plain ASCII")
        if name.lower() in _OURS:
            raise ValueError(f"option 'headers': {name} is not yours to set; headwater does")
    return dict(pairs)
