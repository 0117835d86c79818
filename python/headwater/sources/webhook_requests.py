"""What a request to a webhook means: who has sent it, and which records its body has. No input or output."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Collection, Mapping, Sequence
from urllib.parse import parse_qsl

__all__ = ["HEADER_CHECKS", "RequestError", "check_body", "check_headers", "split_body"]


class RequestError(Exception):
    """The caller gets this status, and the message as the response's body."""

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


# Who has sent it

HEADER_CHECKS = ("header", "basic")
"""The kinds of verification that need no body."""

_DIGITS = re.compile(r"[0-9]{1,15}", re.ASCII)


def check_headers(kind: str, header: str, headers: Mapping[str, str], secrets: Sequence[str]) -> None:
    """`header`: the header has the secret. `basic`: HTTP basic authentication with `user:password`.

    Raises RequestError.
    """
    if kind == "basic":
        value = headers.get("authorization", "")
        scheme, _, credentials = value.partition(" ")
        expected = [base64.b64encode(secret.encode()).decode() for secret in secrets]
        if scheme.lower() != "basic" or not _matches(credentials.strip(), expected):
            message = "user and password are missing or wrong: send them with HTTP basic authentication"
            raise RequestError(401, message, WWW_Authenticate='Basic realm="webhook"')
    elif not _matches(headers.get(header, ""), secrets):
        state = "wrong" if header in headers else "missing"
        raise RequestError(401, f"the header {header} with the shared secret is {state}")


def check_body(
    kind: str, headers: Mapping[str, str], body: bytes, secrets: Sequence[str], now: float, tolerance: float
) -> None:
    """An HMAC with SHA-256 of the body, as GitHub, Stripe and Slack send it. Raises RequestError.

    Stripe and Slack sign the time too; it may differ from `now` by `tolerance`, both in seconds.
    """
    if kind == "github":
        signatures, signed = [_header(headers, "x-hub-signature-256").removeprefix("sha256=")], body
    elif kind == "stripe":
        fields = [field.partition("=") for field in _header(headers, "stripe-signature").split(",")]
        times = [value for name, _, value in fields if name.strip() == "t"]
        signatures = [value.strip() for name, _, value in fields if name.strip() == "v1"]
        time = _check_time(times[0] if times else "", "Stripe-Signature", now, tolerance)
        signed = b"%b.%b" % (time.encode(), body)
    else:
        signatures = [_header(headers, "x-slack-signature").removeprefix("v0=")]
        header = "x-slack-request-timestamp"
        time = _check_time(_header(headers, header), "X-Slack-Request-Timestamp", now, tolerance)
        signed = b"v0:%b:%b" % (time.encode(), body)
    expected = [hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest() for secret in secrets]
    if not any(_matches(signature, expected) for signature in signatures[:_MAX_SIGNATURES]):
        raise RequestError(401, "the signature is wrong: it was made with another secret or of another body")


_MAX_SIGNATURES = 8


def _header(headers: Mapping[str, str], name: str) -> str:
    if name not in headers:
        raise RequestError(401, f"the header {name} with the signature is missing")
    return headers[name]


def _check_time(text: str, header: str, now: float, tolerance: float) -> str:
    if not _DIGITS.fullmatch(text):
        raise RequestError(401, f"the header {header} has no time, which is signed too")
    if abs(now - int(text)) > tolerance:
        raise RequestError(
            401, f"the signature is {now - int(text):.0f} s old by this clock; {tolerance:.0f} s are allowed"
        )
    return text


def _matches(value: str, expected: Sequence[str]) -> bool:
    """In a time that does not depend on how much of the value is right."""
    found = False
    for each in expected:
        found |= hmac.compare_digest(value.encode("utf-8", "surrogateescape"), each.encode())
    return found


# The records in it

_NDJSON = frozenset(
    f"application/{name}" for name in ("x-ndjson", "ndjson", "jsonl", "x-jsonlines", "jsonlines", "json-seq")
)
_FORM = "application/x-www-form-urlencoded"
_MAX_FIELDS = 1000
_NUMBER_OR_WORD = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?|true|false|null", re.ASCII)
_WHITESPACE = " \t\r\n"


def split_body(
    body: bytes, content_type: str, kind: str, *, default: str, strings: Collection[str] = ()
) -> list[bytes]:
    """The records in a body: `json`, one object or an array; `ndjson`, one in each line; `form`; `raw`, one.

    `auto` goes by the content type, and is `default` for other types. The fields of a form become a JSON
    object; values are strings in the columns `strings`, and elsewhere if they look like no other JSON value.
    Raises RequestError.
    """
    if kind == "auto":
        kind = _kind_of(content_type, body, default)
    if kind == "raw":
        return [body]
    if not body.strip():
        raise RequestError(400, "the body is empty")
    if kind == "ndjson":
        return [line for line in body.split(b"\n") if line.strip()]
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise RequestError(400, f"the body is not in UTF-8: {error.reason} at byte {error.start}") from None
    return [_form_record(text, strings)] if kind == "form" else _json_records(text, body)


def _kind_of(content_type: str, body: bytes, default: str) -> str:
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type.startswith("multipart/"):
        raise RequestError(
            415, f"the content type {media_type} is not supported; send JSON, NDJSON or a form"
        )
    if media_type == _FORM:
        # curl -d sends this content type with whatever it is given.
        return "json" if body.lstrip()[:1] in (b"{", b"[") else "form"
    if media_type in _NDJSON:
        return "ndjson"
    if media_type.endswith(("/json", "+json")):
        return "json"
    return default


def _json_records(text: str, body: bytes) -> list[bytes]:
    """The elements of an array as they are written, because numbers must keep their digits."""
    text = text.strip(_WHITESPACE)
    if not text.startswith("["):
        return [body]  # the decoder says what is wrong with it
    decoder, records, at = json.JSONDecoder(), [], _skip(text, 1)
    if text[at : at + 1] == "]":
        at += 1
    else:
        while True:
            try:
                _, end = decoder.raw_decode(text, at)
            except (ValueError, RecursionError) as error:
                reason = getattr(error, "msg", "nested too deep")
                raise RequestError(400, f"the body is not valid JSON: {reason} at character {at}") from None
            records.append(text[at:end].encode())
            at = _skip(text, end)
            separator, at = text[at : at + 1], _skip(text, at + 1)
            if separator == "]":
                break
            if separator != ",":
                raise RequestError(400, f"the body is not valid JSON: expected , or ] at character {at - 1}")
    if at < len(text):
        raise RequestError(400, f"the body is not valid JSON: more follows the array at character {at}")
    return records


def _skip(text: str, at: int) -> int:
    """The position of the next character that is not white space."""
    while at < len(text) and text[at] in _WHITESPACE:
        at += 1
    return at


def _form_record(text: str, strings: Collection[str]) -> bytes:
    try:
        pairs = parse_qsl(
            text.strip(),
            keep_blank_values=True,
            strict_parsing=True,
            errors="strict",
            max_num_fields=_MAX_FIELDS,
        )
    except ValueError as error:
        raise RequestError(400, f"the body is not a form: {error}") from None
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    if list(fields) == ["payload"] and fields["payload"][0].startswith("{"):
        return fields["payload"][0].encode()  # as GitHub and Slack send JSON in a form
    members = []
    for name, values in fields.items():
        items = [_json_value(value, is_string=name in strings) for value in values]
        value = items[0] if len(items) == 1 else f"[{','.join(items)}]"
        members.append(f"{json.dumps(name)}:{value}")
    return f"{{{','.join(members)}}}".encode()


def _json_value(value: str, *, is_string: bool) -> str:
    return value if not is_string and _NUMBER_OR_WORD.fullmatch(value) else json.dumps(value)
