"""What the command prints: lines without effect on a terminal, and how long it has been waiting."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from headwater.escaping import escape_unprintable

__all__ = ["OutputClosed", "print_error", "print_lines", "print_message", "waiting"]

_ERASE_LINE = "\r\x1b[K"


class OutputClosed(BaseException):
    """The program that reads the output has ended, as `head` does."""


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        try:
            print(escape_unprintable(line.rstrip(), keep="\t"), flush=True)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it at exit
            raise OutputClosed from None


def print_error(message: str) -> None:
    """On one line, with the name of the command."""
    print_message(f"headwater: {message}")


def print_message(text: str) -> None:
    """To standard error; it may have several lines."""
    print(escape_unprintable(text, keep="\n\t"), file=sys.stderr)


@contextmanager
def waiting(what: Callable[[], str]) -> Iterator[None]:
    """If standard error is a terminal, shows every second what the block waits for, and for how long.

    The line is erased at the end of the block, which should print nothing else to the terminal.
    """
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield
        return
    started, done = time.monotonic(), threading.Event()

    def show() -> None:
        while not done.wait(1):
            text = escape_unprintable(f"{what()} … {time.monotonic() - started:.0f} s")
            print(f"{_ERASE_LINE}{text}", end="", file=sys.stderr, flush=True)

    thread = threading.Thread(target=show, name="headwater-waiting", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        print(_ERASE_LINE, end="", file=sys.stderr, flush=True)
