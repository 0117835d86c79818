"""Checks URLs, addresses and headers before anything is sent."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping
from urllib.parse import unquote_plus, urlencode, urlsplit

from headwater import Secret
from headwater.http.errors import HttpError

__all__ = ["Route", "address_kind", "origin", "parse_headers", "redact", "validate_url", "with_params"]

_DEFAULT_PORTS = {"http": 80, "https": 443}
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_RESERVED_HEADERS = ("accept-encoding", "connection", "content-length", "host", "te", "transfer-encoding")


def validate_url(url: str, *, allow_http: bool, subject: str = "option 'url'") -> str:
    """Returns the URL if it is allowed. Otherwise a ValueError says why not; `subject` begins its message."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{subject} is not a URL: {error}") from None
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            f"{subject} contains a user or password, which logs would show: use option 'headers'"
        )
    value = f"{subject} is {redact(url)!r}"
    if (
        parts.scheme not in _DEFAULT_PORTS
        or not parts.hostname
        or port == 0
        or not url.isprintable()
        or " " in url
        or "\\" in url
    ):
        raise ValueError(f"{value}, it must be https://host/path, or http:// where that is allowed")
    if parts.scheme == "http" and not allow_http and not _is_loopback(parts.hostname):
        raise ValueError(
            f"{value}: plain http can be read and changed in transit. Use https, or set allow_http=true"
        )
    return url


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")  # IPv4 addresses behind a NAT64
_COMPATIBLE = ipaddress.IPv6Network("::/96")  # IPv4 addresses as they were first written in IPv6


def address_kind(host: str) -> str:
    """Where an address is: `public`, `private`, `link-local` or `loopback`, which is this machine.

    `private` is everything else that is not part of the internet. A name counts as `public`, except for
    `localhost`.

    >>> [address_kind(host) for host in ("8.8.8.8", "10.0.0.1", "::ffff:169.254.169.254", "0.0.0.0")]
    ['public', 'private', 'link-local', 'loopback']
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return "loopback" if _is_loopback(host) else "public"
    if isinstance(address, ipaddress.IPv6Address) and not address.is_loopback:
        embedded = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
        if embedded is None and (address in _TRANSLATED or address in _COMPATIBLE):
            embedded = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if embedded is not None:
            return address_kind(str(embedded))
    if address.is_loopback or address.is_unspecified:
        return "loopback"
    if address.is_link_local:
        return "link-local"
    is_public = (
        address.is_global and not address.is_multicast and not getattr(address, "is_site_local", False)
    )
    return "public" if is_public else "private"


class Route:
    """Where the requests of one connection go: to the URL, then to where redirects lead.

    The URL is the user's choice, redirects are not: a server could have anything requested that only this
    machine can reach. The address is checked when the connection is made, not looked up a second time.
    """

    def __init__(self) -> None:
        self._first: tuple[str, int] | None = None  # the kind of address and the port that the URL leads to
        self._host, self._port, self._requests = "", 0, 0

    def request(self, url: str) -> None:
        """Says where the next request goes. Call it before each."""
        _, self._host, self._port = origin(url)
        self._requests += 1

    def check(self, address: str | None) -> None:
        """Raises an HttpError if this request must not go to this address; None if a proxy looks it up."""
        kind = address_kind(self._host if address is None else address)
        if self._requests == 1:
            self._first = kind, self._port
            return
        first_kind, first_port = self._first or ("public", 0)
        if kind == "public" or (kind == first_kind and (kind == "private" or self._port == first_port)):
            return
        where = f"another port of a {kind} address" if kind == first_kind else f"a {kind} address"
        raise HttpError(
            f"the redirect to {self._host[:100]} is refused: it leads to {where}. "
            "If that is intended, use its target as option 'url'"
        )


def redact(url: str) -> str:
    """The URL without user, query and fragment, where people put tokens."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def origin(url: str) -> tuple[str, str, int]:
    """Scheme, host and port."""
    parts = urlsplit(url)
    return parts.scheme, (parts.hostname or "").lower(), parts.port or _DEFAULT_PORTS[parts.scheme]


def with_params(url: str, params: Mapping[str, str]) -> str:
    """The URL with these query parameters, which replace those of the same name.

    >>> with_params("https://example.org/feed?since=1&all=yes", {"since": "7 8"})
    'https://example.org/feed?all=yes&since=7+8'
    """
    parts = urlsplit(url)
    kept = [
        pair for pair in parts.query.split("&") if pair and unquote_plus(pair.partition("=")[0]) not in params
    ]
    query = "&".join([*kept, urlencode(params)] if params else kept)
    return parts._replace(query=query, fragment="").geturl()


def parse_headers(secret: Secret | None) -> dict[str, str]:
    """Parses option 'headers': lines of `Name: value`, or a JSON object.

    Error messages give the number of the header, never its text, which may be secret.

    >>> parse_headers(Secret("Authorization: Bearer abc"))
    {'Authorization': 'Bearer abc'}
    """
    text = "" if secret is None else secret.reveal().strip()
    if text.startswith("{"):
        try:
            document = json.loads(text)
        except ValueError:
            document = None
        if not isinstance(document, dict) or not all(isinstance(value, str) for value in document.values()):
            raise ValueError("option 'headers' begins with { and is not a JSON object of strings") from None
        pairs = list(document.items())
    else:
        lines = [line for line in text.splitlines() if line.strip()]
        pairs = [(name.strip(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    for number, (name, value) in enumerate(pairs, 1):
        if not _HEADER_NAME.fullmatch(name) or not value or not value.isprintable() or not value.isascii():
            raise ValueError(f"option 'headers': header {number} is not Name: value in plain ASCII")
        if name.lower() in _RESERVED_HEADERS:
            raise ValueError(f"option 'headers': {name} cannot be set; headwater sets it")
    return dict(pairs)
