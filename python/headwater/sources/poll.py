"""Any REST endpoint, asked again and again for its records."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

import headwater as hw
from headwater.decode import decoder
from headwater.http import Connection, Http, HttpError, Request

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["poll"]

_MAX_KEYS = 5_000  # of which repeats are known; they are in the cursor, with 8 bytes each
_KEY_BYTES = 8
_CONDITIONS = ("if-none-match", "if-modified-since")
_MAX_PAUSE_SECONDS = 3600.0
_MAX_JSON_CURSOR = 1000  # characters of a cursor that is not a string


class Poll(hw.Source, name="poll", identity=("url",), schemes=("poll+https", "poll+http")):
    """The records of JSON responses. The URL is requested every `interval`, and further pages at once.

    `records` is the path of the list in the response, such as `data.items`; without it the response is the
    list, or one record. `cursor` is the path of a field in each record, and `resume` says where the value of
    the last one goes in the next request: `query:NAME`, `header:NAME` or `body:PATH`. `next` says where the
    next page is: `link`, for the header `Link`, or a path in the response. What is there is a URL, unless
    `page` says where it goes, as `resume` does. `key` are the paths of fields by which repeats are known;
    the last 5,000 keys are in the cursor. `body` is the JSON of a POST. `decode`, `schema`, `metadata` and
    `headers` are those of `sse`.

    >>> print(poll("https://example.org/quakes", records="features", key=["id", "properties.updated"]))
    poll(url='https://example.org/quakes', records='features', key=['id', 'properties.updated'])
    """

    def __init__(
        self,
        url: str,
        interval: timedelta = timedelta(seconds=60),
        records: str | None = None,
        cursor: str | None = None,
        resume: str | None = None,
        next: str | None = None,
        page: str | None = None,
        key: list[str] | None = None,
        body: str | None = None,
        headers: hw.Secret | None = None,
        decode: str = "text",
        schema: str | None = None,
        metadata: bool = False,
        allow_http: bool = False,
        idle_timeout: timedelta = timedelta(seconds=60),
        retry: timedelta = timedelta(seconds=1),
        max_retries: int | None = None,
        max_response_bytes: int = 32 << 20,
        connect_timeout: timedelta = timedelta(seconds=10),
    ) -> None:
        if max_response_bytes < 1:
            raise ValueError(f"option 'max_response_bytes' is {max_response_bytes}, it must be 1 or more")
        self._extra_columns: dict[str, str] = {}
        if metadata or decode == "text":
            self._extra_columns["arrived"] = "TIMESTAMP"
        if metadata:
            self._extra_columns["headers"] = "MAP<STRING, STRING>"
        extra_schema = ", ".join(f"{name} {type}" for name, type in self._extra_columns.items())
        self._decoder = decoder(decode, schema, beside=extra_schema or None)
        self._records_path = [] if records is None else _parse_path("records", records)
        self._cursor_path = None if cursor is None else _parse_path("cursor", cursor)
        self._next_path = None if next is None or next == "link" else _parse_path("next", next)
        self._follows_links = next == "link"
        self._key_paths = [_parse_path("key", path) for path in key or []]
        self._body = None if body is None else _parse_body(body)
        self._resume = None if resume is None else _Place("resume", resume, self._body)
        self._page = None if page is None else _Place("page", page, self._body)
        if (cursor is None) != (resume is None):
            missing = "cursor" if cursor is None else "resume"
            raise ValueError(f"options 'cursor' and 'resume' go together, and {missing!r} is missing")
        if page is not None and self._next_path is None:
            raise ValueError("option 'page' needs option 'next': the path of the next page in the response")
        self._has_one_page = next is None
        self._interval = interval.total_seconds()
        self._max_bytes = max_response_bytes
        self._body_seconds = 10 * idle_timeout.total_seconds()
        self._http = Http(
            url,
            headers=headers,
            allow_http=allow_http,
            connect_timeout=connect_timeout,
            idle_timeout=idle_timeout,
            retry=retry,
            max_retries=max_retries,
        )
        self._request = Request()
        self._pause = 0.0

    @property
    def schema(self) -> StructType:
        """The columns, which depend on `decode`, `schema` and `metadata`."""
        return self._decoder.schema

    def read(self, since: Any) -> Iterator[Any]:
        """Yields the new records of each page, with the cursor after them. Never ends."""
        position = _Position(since)
        yielded, conditions, is_first_page = position.cursor, position.conditions, True
        after = position.after
        self._request = self._first_request(position)
        for connection in self._http.connections(lambda: self._request, lambda: self._pause):
            text = "" if connection.status == 304 else self._text(connection)
            if text is None:
                continue  # it was cut off, and is requested again
            document = _parse(text)
            if is_first_page and connection.status != 304:
                conditions = _conditions(connection)
            records = self._new_records(document, text, position, connection)
            following = None if document is None else self._following_request(document, connection)
            if following is None:
                # They belong to the first page, as it was requested with this cursor, and to what it led to.
                position.conditions = conditions if position.after == after else {}
            if records or position.cursor != yielded:
                yielded = position.cursor
                yield hw.At(yielded, self._rows(records, connection) if records else [])
            self._pause, is_first_page = connection.requested_pause() or 0.0, following is None
            if following is not None:
                self._request = following
                continue
            # Without further pages, a response may have only the first of the records after the cursor.
            has_more = self._has_one_page and position.after != after
            if not has_more:
                yield hw.CAUGHT_UP
                self._pause = max(self._pause, self._interval)
            self._pause = min(self._pause, _MAX_PAUSE_SECONDS)
            after, self._request = position.after, self._first_request(position)

    def close(self) -> None:
        self._http.close()

    def _first_request(self, position: _Position) -> Request:
        request = Request(headers=position.conditions, body=_to_bytes(self._body))
        if self._resume is None or position.after is None:
            return request
        return self._resume.put(request, position.after)

    def _following_request(self, document: Any, connection: Connection) -> Request | None:
        """The request for the next page; None if this is the last."""
        if self._follows_links:
            place: Any = _next_link(connection.headers.get("link", ""))
        elif self._next_path is not None:
            place = _field(document, self._next_path)
        else:
            return None
        if place is None or place is False or place == "":
            return None
        headers = {name: value for name, value in self._request.headers.items() if name not in _CONDITIONS}
        current = replace(self._request, headers=headers)
        if self._page is not None:
            self._page.check(place, connection)
            following = self._page.put(current, place)
        elif isinstance(place, str):
            connection.check_cursor(place)
            following = replace(current, url=urljoin(connection.url, place), params={})
        else:
            raise HttpError(
                f"the next page is {_to_text(place)[:60]}, which is no URL: say with 'page' where it goes"
            )
        if following == current:
            raise HttpError("the next page of a page is that page itself")
        return following

    def _text(self, connection: Connection) -> str | None:
        data = connection.body(self._max_bytes, self._body_seconds)
        try:
            return None if data is None else data.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise HttpError("the response is not in UTF-8", connection.status) from None

    def _new_records(
        self, document: Any, text: str, position: _Position, connection: Connection
    ) -> list[bytes]:
        """The records that are not repeats, as they stand in the response."""
        new = []
        last = None
        for record, raw in [] if document is None else _records(text, self._records_path):
            keys = [_field(record, path) for path in self._key_paths]
            if all(key is None for key in keys) or position.is_new(keys):
                new.append(raw.encode())
            if self._cursor_path is not None and (value := _field(record, self._cursor_path)) is not None:
                last = value
        if last is not None and self._resume is not None:
            self._resume.check(last, connection)
            position.after = last
        return new

    def _rows(self, records: list[bytes], connection: Connection) -> Any:
        extra: dict[str, Any] = {"arrived": datetime.now(timezone.utc), "headers": connection.headers}
        return self._decoder.rows(records, **{name: extra[name] for name in self._extra_columns})


class _Position:
    """What has been read: the cursor of the last record, the keys of recent ones, and how to ask for changes.

    >>> position = _Position(17)
    >>> position.after, position.is_new([1]), position.is_new([1]), _Position(position.cursor).is_new([1])
    (17, True, False, False)
    """

    def __init__(self, cursor: Any) -> None:
        self.after: Any = cursor
        self.conditions: dict[str, str | bytes] = {}
        """The headers of a conditional request, in lower case."""
        self._keys: dict[bytes, None] = {}
        if not isinstance(cursor, dict):
            return
        try:
            if cursor["version"] != 1:
                raise ValueError
            self.after, self.conditions = cursor["after"], dict(cursor["conditions"])
            joined = base64.b64decode(cursor["keys"], validate=True)
        except (KeyError, TypeError, ValueError):
            raise ValueError(
                f"the cursor {str(cursor)[:200]} is not one of source 'poll': use one that it wrote, or the "
                "value of a record's cursor"
            ) from None
        self._keys = {joined[i : i + _KEY_BYTES]: None for i in range(0, len(joined), _KEY_BYTES)}

    @property
    def cursor(self) -> dict[str, Any]:
        keys = base64.b64encode(b"".join(self._keys)).decode()
        return {"version": 1, "after": self.after, "conditions": self.conditions, "keys": keys}

    def is_new(self, key: list[Any]) -> bool:
        """Whether this key is none of the last ones. It is the newest of them from now on."""
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).digest()[:_KEY_BYTES]
        is_new = digest not in self._keys
        self._keys.pop(digest, None)
        self._keys[digest] = None
        if len(self._keys) > _MAX_KEYS:
            del self._keys[next(iter(self._keys))]
        return is_new


class _Place:
    """Where a value goes in a request: `query:NAME`, `header:NAME` or `body:PATH`."""

    def __init__(self, option: str, text: str, body: Any) -> None:
        self._kind, _, self._name = text.partition(":")
        is_header_name = self._name.replace("-", "").isalnum()
        if (
            self._kind not in ("query", "header", "body")
            or not self._name
            or (self._kind == "header" and not is_header_name)
        ):
            raise ValueError(
                f"option '{option}' is {text!r}, it must be query:NAME, header:NAME or body:PATH"
            )
        self._path = _parse_path(option, self._name) if self._kind == "body" else []
        if self._kind == "body" and not isinstance(body, dict):
            raise ValueError(f"option '{option}' is {text!r}, which needs option 'body' to be a JSON object")

    def check(self, value: Any, connection: Connection) -> None:
        """Raises an HttpError for a value of the server that cannot be sent back."""
        text = _to_text(value)
        if type(value) is not str and len(text) > _MAX_JSON_CURSOR:
            raise HttpError(
                f"a cursor has {len(text)} characters. One that is not a string may have {_MAX_JSON_CURSOR}: "
                f"{text[:60]}…"
            )
        connection.check_cursor(text, header=self._kind == "header")

    def put(self, request: Request, value: Any) -> Request:
        text = _to_text(value)
        if self._kind == "query":
            return replace(request, params={**request.params, self._name: text})
        if self._kind == "header":
            return replace(request, headers={**request.headers, self._name: text.encode()})
        body = json.loads(request.body or b"{}")
        parent = body
        for name in self._path[:-1]:
            parent = parent.setdefault(name, {}) if isinstance(parent, dict) else {}
        if not isinstance(parent, dict):
            raise HttpError(f"option 'body' has no object at {'.'.join(self._path[:-1])!r}")
        parent[self._path[-1]] = value
        return replace(request, body=_to_bytes(body))


def _parse_path(option: str, path: str) -> list[str]:
    names = path.split(".")
    if not all(names):
        raise ValueError(
            f"option '{option}' is {path!r}, it must be field names separated by dots, such as data.items"
        )
    return names


def _parse_body(body: str) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"option 'body' is not JSON: {error}") from None


def _to_bytes(body: Any) -> bytes | None:
    return None if body is None else json.dumps(body).encode()


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _conditions(connection: Connection) -> dict[str, str | bytes]:
    """Headers for the same request later, to which the server then need not respond with the same again."""
    headers: dict[str, str | bytes] = {}
    for name, validator in zip(_CONDITIONS, ("etag", "last-modified"), strict=True):
        value = connection.headers.get(validator, "").strip()
        if value and len(value) <= _MAX_JSON_CURSOR and value.isprintable() and value.isascii():
            headers[name] = value
    return headers


def _next_link(header: str) -> str | None:
    """The URL of `<URL>; rel="next"` in a header `Link`.

    >>> _next_link('</a?page=1>; rel="prev", </a?page=3>; rel="next"')
    '/a?page=3'
    """
    for url, parameters in re.findall(r"<([^<>]*)>([^<>]*)", header):
        if re.search(r"""\brel\s*=\s*(?:next\b|"(?:[^"]*\s)?next(?:\s[^"]*)?")""", parameters, re.IGNORECASE):
            return str(url)
    return None


def _parse(text: str) -> Any:
    """The JSON of a response; None if it is empty."""
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise HttpError(f"the response is not JSON ({reason}): {text[:80]!r}") from None


_JSON = json.JSONDecoder()
_BLANKS = re.compile(r"[ \t\n\r]*")


def _records(text: str, path: list[str]) -> Iterator[tuple[Any, str]]:
    """The records of valid JSON, parsed and as they stand there: to write them anew would change numbers.

    >>> list(_records('{"n": [0], "data": {"items": [{"a": 1.50}, 2]}}', ["data", "items"]))
    [({'a': 1.5}, '{"a": 1.50}'), (2, '2')]
    """
    position = _skip(text, 0)
    for depth, name in enumerate(path):
        names: list[str] = []
        is_object = text[position] == "{"
        position = _skip(text, position + 1)
        while is_object and text[position] != "}":
            key, position = _JSON.raw_decode(text, position)
            position = _skip(text, _skip(text, position) + 1)  # after the colon
            names.append(key)
            if key == name:
                break
            _, position = _JSON.raw_decode(text, position)
            position = _skip(text, position)
            position = _skip(text, position + 1) if text[position] == "," else position
        if not names or names[-1] != name:
            place = f"the response has no {'.'.join(path[: depth + 1])!r}, which option 'records' names"
            raise HttpError(f"{place}; there is: {', '.join(names)[:200] or 'no object'}")
    if text[position] != "[":
        record, end = _JSON.raw_decode(text, position)
        if record is not None:
            yield record, text[position:end]
        return
    position = _skip(text, position + 1)
    while text[position] != "]":
        record, end = _JSON.raw_decode(text, position)
        yield record, text[position:end]
        position = _skip(text, end)
        position = _skip(text, position + 1) if text[position] == "," else position


def _skip(text: str, position: int) -> int:
    match = _BLANKS.match(text, position)
    return position if match is None else match.end()


def _field(value: Any, path: list[str]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


poll = Poll
