"""What the command says of an error: one line, or the traceback where the error is the author's."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import traceback
import types
from collections.abc import Sequence
from pathlib import Path

from headwater.errors import masked

__all__ = ["format_error"]

_OURS = f"{Path(__file__).parent.parent}{os.sep}"
_BETWEEN = ("<frozen ", inspect.getfile(types))  # Python's own, between an author's frames and ours
_BEFORE = tuple(f"{Path(inspect.getfile(module)).parent}{os.sep}" for module in (asyncio, importlib))

# What headwater raises to say what is wrong; anything else that no author's code has raised is a bug.
_SAID = (TypeError, ValueError, RuntimeError, ImportError)


def format_error(error: BaseException, secrets: Sequence[str] = ()) -> str | None:
    """None where the error is a bug of headwater's, whose traceback is wanted whole."""
    found = traceback.TracebackException.from_exception(error)
    is_authors = bool(_authors(found.stack)) or isinstance(error, SyntaxError)
    if is_authors:
        _cut(found)
        text = "".join(found.format()).rstrip()
    elif isinstance(error, _SAID):
        text = (str(error).splitlines() or [type(error).__name__])[0]
    else:
        return None
    return masked(text, secrets)


def _cut(found: traceback.TracebackException | None) -> None:
    """Leave the author's frames, and those of the libraries that the author calls."""
    if found is not None:
        found.stack = traceback.StackSummary.from_list(_authors(found.stack))
        _cut(found.__cause__)
        _cut(found.__context__)


def _authors(stack: Sequence[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    kept = [frame for frame in stack if not frame.filename.startswith((_OURS, *_BETWEEN))]
    while kept and kept[0].filename.startswith(
        _BEFORE
    ):  # what leads there; later ones are the author's calls
        del kept[0]
    return kept
