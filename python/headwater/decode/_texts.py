"""Columns of texts → columns of times and bytes: what JSON has to write as a string."""

import base64

import pyarrow as pa
import pyarrow.compute as pc

from headwater._rows.bad_rows import Refused

__all__ = ["BYTES", "DAY", "INSTANT", "LOCAL", "TIME", "read_texts"]

_DATE = r"\d{4}-\d\d-\d\d"
_CLOCK = r"\d\d:\d\d(:\d\d(\.\d{1,6})?)?"
_ZONE = r"(Z|[+-](0\d|1[0-8])(:?[0-5]\d)?)"

DAY = "a date such as '2024-05-31'"
TIME = "a time such as '12:30:00.5', to the microsecond at most"
LOCAL = "a date and time without a zone such as '2024-05-31T12:30:00.5', to the microsecond at most"
INSTANT = "a date and time with a zone such as '2024-05-31T12:30:00.5Z', to the microsecond at most"
BYTES = "a text in base64"

_FORMS = {  # Arrow alone would read more than that: a day for its midnight, an hour without minutes
    DAY: _DATE,
    TIME: _CLOCK,
    LOCAL: rf"{_DATE}[T ]{_CLOCK}",
    INSTANT: rf"{_DATE}[T ]{_CLOCK}{_ZONE}",
}


def read_texts(what: str, texts: pa.Array, arrow: pa.DataType) -> pa.Array:
    """The column that the texts stand for; an exception where one of them is none of `what`."""
    if what == BYTES:
        return _from_base64(texts, arrow)
    if not pc.all(pc.match_substring_regex(texts, rf"\A{_FORMS[what]}\z"), min_count=0).as_py():
        raise Refused(what)
    if what == TIME:  # Arrow wants the seconds
        texts = pc.replace_substring_regex(texts, r"\A(\d\d:\d\d)\z", r"\1:00").cast(pa.time64("us"))
    return texts.cast(arrow)


def _from_base64(texts: pa.Array, arrow: pa.DataType) -> pa.Array:
    decoded = [None if t is None else base64.b64decode(t, validate=True) for t in texts.to_pylist()]
    return pa.array(decoded, arrow)
