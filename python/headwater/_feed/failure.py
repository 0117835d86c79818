"""What is told of an error in an author's code: what, where, what to do, and the traceback from there on."""

from __future__ import annotations

import traceback
from pathlib import Path

from headwater._rows.converter import BadRowError

__all__ = ["explain", "first_line"]

_OURS = str(Path(__file__).parent.parent)

_RESTART = "Set the option onError to restart (with back-off) or to end to go on after an error of the feed."
_BAD_ROW = "Set the option onBadRow to drop or to null to go on after a bad row."


def explain(error: BaseException, secrets: list[str], remedy: str | None = None) -> str:
    """One line that says it all, and Python's traceback below."""
    frames = _authors_frames(error)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno}, in {frames[-1].name})" if frames else ""
    if remedy is None:
        remedy = _BAD_ROW if isinstance(error, BadRowError) else _RESTART
    told = traceback.TracebackException.from_exception(error)
    told.stack = traceback.StackSummary.from_list(frames)
    text = f"{first_line(error, secrets)}{place}. {remedy}\n\n{''.join(told.format()).rstrip()}"
    return _without(secrets, text)


def first_line(error: BaseException, secrets: list[str]) -> str:
    lines = str(error).strip().splitlines()
    said = f": {lines[0].rstrip('.')}" if lines else ""
    return _without(secrets, f"{type(error).__name__}{said}")


def _without(secrets: list[str], text: str) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def _authors_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Without those of this package that lead to the author's code; all where none is the author's."""
    frames = list(traceback.extract_tb(error.__traceback__))
    for index, frame in enumerate(frames):
        if not frame.filename.startswith(_OURS):
            return frames[index:]
    return [] if isinstance(error, BadRowError) else frames
