"""How the command prints an error: on one line, or with a traceback if the author's code has raised it."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.errors import author_traceback, mask

__all__ = ["format_error"]

# Raised by headwater with a message for the user. Any other error from headwater's own code is a bug.
_WITH_MESSAGE = (TypeError, ValueError, RuntimeError, ImportError)


def format_error(error: BaseException, secrets: Sequence[str] = ()) -> str | None:
    """None for a bug of headwater, which should be printed with its whole traceback."""
    trace = author_traceback(error)
    if trace.stack or isinstance(error, SyntaxError):
        text = "".join(trace.format()).rstrip()
    elif isinstance(error, _WITH_MESSAGE):
        text = (str(error).splitlines() or [type(error).__name__])[0]
    else:
        return None
    return mask(text, secrets)
