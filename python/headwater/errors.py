"""What headwater raises, and how an error in an author's code is described."""

from __future__ import annotations

import reprlib
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path

__all__ = ["BadRowError", "HeadwaterError", "explain", "first_line", "masked", "shown"]


class HeadwaterError(RuntimeError):
    """Something headwater cannot do as asked: what is wrong and where, and what to do about it.

    `what` and `remedy` are the two halves of its message.

    >>> import headwater as hw
    >>> try:
    ...     hw.Secret("env:NONE_SUCH").reveal()
    ... except hw.HeadwaterError as error:
    ...     print(error.what)
    the secret 'env:NONE_SUCH' is not there: the environment has no variable 'NONE_SUCH'
    """

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}. Fix: {remedy}.")
        self.what = what
        self.remedy = remedy


_LONGEST = 80


class BadRowError(ValueError):
    """A row that does not fit: which one, where in it, what is there, and what is allowed instead."""

    def __init__(self, number: int, field: str | None, value: str, reason: str) -> None:
        place = f"row {number}" if field is None else f"row {number}, field {field!r}"
        super().__init__(f"{place}: {reason} (found: {value})")
        self.number = number
        self.field = field
        self.value = value
        self.reason = reason

    def __reduce__(self) -> tuple[type, tuple[int, str | None, str, str]]:
        """Python would pickle the message alone, and fail to make the error of it again."""
        return type(self), (self.number, self.field, self.value, self.reason)


def shown(value: object) -> str:
    """The value for a message: short, and whatever its `repr` does."""
    try:
        text = _SHORT.repr(value)
    except Exception:
        text = f"<{type(value).__name__}, whose repr fails>"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


_SHORT = reprlib.Repr()


_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = _LONGEST


_SHORT.maxtuple = _SHORT.maxlist = _SHORT.maxdict = 8


def masked(text: str, secrets: Iterable[str]) -> str:
    """The text without the secrets that it says."""
    for secret in sorted(secrets, key=len, reverse=True):  # one may be the beginning of another
        text = text.replace(secret, "***")
    return text


_OURS = str(Path(__file__).parent)
_LIBRARIES = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platlib", "purelib")} | {"<frozen", _OURS}
)

_LONGEST = 64 << 10
_RESTART = "Set the option onError to restart (with back-off) or to end to go on after an error of the feed."
_BAD_ROW = "Set the option onBadRow to drop or to null to go on after a bad row."


def explain(error: BaseException, secrets: list[str], remedy: str | None = None) -> str:
    """One line that says it all, and Python's traceback below."""
    frames = _authors_frames(error)
    place = _place(frames)
    if remedy is None:
        remedy = _BAD_ROW if isinstance(error, BadRowError) else _RESTART
    told = traceback.TracebackException.from_exception(error)
    told.stack = traceback.StackSummary.from_list(frames)
    text = f"{first_line(error, secrets)}{place}. {remedy}\n\n{''.join(told.format()).rstrip()}"
    return masked(text, secrets)[:_LONGEST]


def first_line(error: BaseException, secrets: list[str]) -> str:
    lines = masked(_said(error), secrets).strip().splitlines()
    said = f": {lines[0].rstrip('.')}" if lines else ""
    return f"{type(error).__name__}{said}"


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # the author's own
        return "its str() fails"


def _place(frames: list[traceback.FrameSummary]) -> str:
    """The author's own line, and not that of a library which it called."""
    own = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)]
    for frame in (own or frames)[-1:]:
        return f" ({Path(frame.filename).name}:{frame.lineno}, in {frame.name})"
    return ""


def _authors_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Without those of this package that lead to the author's code; all where none is the author's."""
    frames = list(traceback.extract_tb(error.__traceback__))
    for index, frame in enumerate(frames):
        if not frame.filename.startswith(_OURS):
            return frames[index:]
    return [] if isinstance(error, BadRowError) else frames
