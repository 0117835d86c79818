"""What headwater raises, and how it reports an error that a source's own code has raised."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import reprlib
import sysconfig
import traceback
import types
from collections.abc import Iterable, Sequence
from pathlib import Path

from headwater.escaping import escape_unprintable

__all__ = [
    "BadRowError",
    "HeadwaterError",
    "author_traceback",
    "explain",
    "first_line",
    "mask",
    "retry_may_help",
    "shorten",
]


class HeadwaterError(RuntimeError):
    """headwater cannot do what was asked. The message says what is wrong, where, and how to fix it.

    `what` and `remedy` are the two halves of its message.

    >>> import headwater as hw
    >>> try:
    ...     hw.Secret("env:NONE_SUCH").reveal()
    ... except hw.HeadwaterError as error:
    ...     print(error.what)
    cannot read the secret 'env:NONE_SUCH': the environment variable 'NONE_SUCH' is not set
    """

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}. Fix: {remedy}.")
        self.what = what
        self.remedy = remedy


class BadRowError(ValueError):
    """A row does not match the schema. The message names the row, the field, the value and the reason."""

    def __init__(self, number: int, field: str | None, value: str, reason: str) -> None:
        place = f"row {number}" if field is None else f"row {number}, field {field!r}"
        super().__init__(escape_unprintable(f"{place}: {reason} (found: {value})"))
        self.number = number
        self.field = field
        self.value = value
        self.reason = reason

    def __reduce__(self) -> tuple[type, tuple[int, str | None, str, str]]:
        """By default Python pickles only the message, and `__init__` could not be called with that."""
        return type(self), (self.number, self.field, self.value, self.reason)


# Values and secrets in messages

_MAX_VALUE_LENGTH = 80
_value_repr = reprlib.Repr()
_value_repr.maxstring = _value_repr.maxother = _value_repr.maxlong = _MAX_VALUE_LENGTH
_value_repr.maxtuple = _value_repr.maxlist = _value_repr.maxdict = 8


def shorten(value: object) -> str:
    """The `repr` of a value on one line of at most 80 characters. Never raises, even if the `repr` does.

    >>> shorten("x" * 1000)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'"
    """
    try:
        text = escape_unprintable(_value_repr.repr(value).replace("\n", " "))
    except Exception:
        text = f"<{type(value).__name__}, whose repr fails>"
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[: _MAX_VALUE_LENGTH - 1]}…"


def mask(text: str, secrets: Iterable[str]) -> str:
    """The text with each secret replaced by `***`."""
    for secret in sorted(secrets, key=len, reverse=True):  # one may be the beginning of another
        text = text.replace(secret, "***")
    return text


# Errors of a source's own code

_PACKAGE = f"{Path(__file__).parent}{os.sep}"
_LIBRARIES = (
    *(sysconfig.get_path(name) for name in ("stdlib", "platlib", "purelib")),
    "<frozen",
    _PACKAGE,
)
_INTERPRETER = ("<frozen ", inspect.getfile(types))  # may stand between any two frames
_CALLERS = tuple(f"{Path(inspect.getfile(module)).parent}{os.sep}" for module in (asyncio, importlib))

_PROGRAMMING_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    HeadwaterError,
    ImportError,
    LookupError,
    NameError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)
_MAX_EXPLANATION_LENGTH = 64 << 10
_ON_ERROR = "Set the option onError to restart (with back-off) or to end to continue after a feed error."
_ON_BAD_ROW = "Set the option onBadRow to drop, null or keep to continue after a bad row."


def explain(
    error: BaseException,
    secrets: Sequence[str],
    remedy: str | None = None,
    yields: Sequence[traceback.FrameSummary] = (),
) -> str:
    """A first line with error, place and remedy, then the traceback of the source's own code.

    The default remedy is that of a feed, and none where a retry would not help. `yields` are the lines where
    the source yields: an error about what it yielded has no frame of the source.
    """
    trace = author_traceback(error)
    if remedy is None:
        on_error = _ON_ERROR if retry_may_help(error) else ""
        remedy = _ON_BAD_ROW if isinstance(error, BadRowError) else on_error
    yields = [frame for frame in yields if not frame.filename.startswith(_PACKAGE)]
    if not trace.stack and yields:
        place = _yield_place(yields)
        which = "Yielded at" if len(yields) == 1 else "Yielded at one of"
        details = f"{which}:\n{''.join(traceback.format_list(list(yields)))}"
    else:
        if not trace.stack and not isinstance(error, BadRowError):  # a built-in source, or a bug of headwater
            trace.stack = traceback.extract_tb(error.__traceback__)
        place, details = _place(trace.stack), "".join(trace.format())
    text = f"{f'{first_line(error, secrets)}{place}. {remedy}'.rstrip()}\n\n{details.rstrip()}"
    return escape_unprintable(mask(text, secrets)[:_MAX_EXPLANATION_LENGTH], keep="\n\t")


def retry_may_help(error: BaseException) -> bool:
    """Whether the same code may succeed later: after an error of input or output, or of a library's own type.

    Other built-in exceptions, and those derived from them, are mistakes in the code.
    """
    if isinstance(error, OSError | EOFError | asyncio.TimeoutError):
        return True
    is_built_in = type(error).__module__ == "builtins"
    return isinstance(error, Exception) and not is_built_in and not isinstance(error, _PROGRAMMING_ERRORS)


def first_line(error: BaseException, secrets: Sequence[str]) -> str:
    """The error's type and the first line of its message."""
    try:
        message = str(error)
    except Exception:  # an author's class may define __str__
        message = "its str() fails"
    lines = mask(message, secrets).strip().splitlines()
    name = type(error).__name__
    return f"{name}: {escape_unprintable(lines[0].rstrip('.'))}" if lines else name


def author_traceback(error: BaseException) -> traceback.TracebackException:
    """The traceback of an error and its causes, reduced to the author's code and the libraries it calls.

    Its `stack` is empty if no such frame took part: headwater itself has raised the error.
    """
    trace = traceback.TracebackException.from_exception(error)
    _keep_author_frames(trace)
    return trace


def _keep_author_frames(trace: traceback.TracebackException | None) -> None:
    if trace is None:
        return
    frames = [frame for frame in trace.stack if not frame.filename.startswith((_PACKAGE, *_INTERPRETER))]
    while frames and frames[0].filename.startswith(_CALLERS):  # later ones are calls that the author makes
        del frames[0]
    trace.stack = traceback.StackSummary.from_list(frames)
    _keep_author_frames(trace.__cause__)
    _keep_author_frames(trace.__context__)


def _yield_place(yields: Sequence[traceback.FrameSummary]) -> str:
    lines = " or ".join(str(frame.lineno) for frame in yields)
    return f" ({Path(yields[0].filename).name}:{lines}, in {yields[0].name})"


def _place(frames: Sequence[traceback.FrameSummary]) -> str:
    """The last line of the author's own code, not of a library that it calls."""
    of_author = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)]
    for frame in (of_author or frames)[-1:]:
        return f" ({Path(frame.filename).name}:{frame.lineno}, in {frame.name})"
    return ""
