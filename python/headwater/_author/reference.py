"""References to secrets: `env:NAME`, a variable of the environment, and `file:PATH`, a file."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

from headwater._errors import HeadwaterError

__all__ = ["is_one", "known", "resolved"]

_LARGEST = 1 << 20

_lock = threading.Lock()
_seen: dict[str, set[str]] = {}
"""What references have led to: a secret that was changed since may still stand in an error."""


def is_one(text: str) -> bool:
    return text.startswith(("env:", "file:"))


def resolved(reference: str) -> str:
    """The text that it leads to now; HeadwaterError, with the reference and never with the text."""
    kind, _, place = reference.partition(":")
    text = _variable(reference, place) if kind == "env" else _content(reference, place)
    with _lock:
        _seen.setdefault(reference, set()).add(text)
    return text


def known(reference: str) -> list[str]:
    """What it leads to now, and what it has led to in this process."""
    with suppress(HeadwaterError):
        resolved(reference)
    with _lock:
        return list(_seen.get(reference, ()))


def _variable(reference: str, name: str) -> str:
    text = os.environ.get(name)
    if text is None:
        raise HeadwaterError(
            f"the secret {reference!r} is not there: the environment has no variable {name!r}",
            "set it for the process that drives Spark, before it is started; for tasks, in spark.executorEnv",
        )
    return text


def _content(reference: str, path: str) -> str:
    """Without the line break that editors leave at the end."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(_LARGEST + 1)
        text = data.decode()
    except UnicodeDecodeError:
        raise _unreadable(reference, "it is not in UTF-8") from None
    except (OSError, ValueError) as error:  # a ValueError for a path with a NUL in it
        raise _unreadable(reference, getattr(error, "strerror", None) or str(error)) from None
    if len(data) > _LARGEST:
        raise _unreadable(reference, f"it is larger than {_LARGEST:,} bytes")
    return text.removesuffix("\n").removesuffix("\r")


def _unreadable(reference: str, why: str) -> HeadwaterError:
    return HeadwaterError(
        f"the secret {reference!r} cannot be read: {why}",
        "name a file with the secret in it, which the process that drives Spark may read",
    )
