"""What is told of an error in an author's code: what, where, what to do, and the traceback from there on."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

from headwater._author.secret import masked
from headwater._rows.converter import BadRowError

__all__ = ["explain", "first_line"]

_OURS = str(Path(__file__).parent.parent)
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
