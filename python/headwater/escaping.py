"""Shows text of strangers, such as rows and bodies of responses, without effect on a terminal or a log."""

from __future__ import annotations

__all__ = ["escape_unprintable"]


def escape_unprintable(text: str, keep: str = "") -> str:
    r"""The text with every character that is not printable written as in a Python string, except for `keep`.

    These are control characters (C0 and C1), which can start commands of a terminal, characters that change
    the direction of text, other invisible ones, line separators and lone surrogates.

    >>> print(escape_unprintable("red: \x1b[31m, C1: \x9b31m, right to left: \u202e, Grüße 🌍"))
    red: \x1b[31m, C1: \x9b31m, right to left: \u202e, Grüße 🌍
    >>> print(escape_unprintable("one\ntwo\r", keep="\n"))
    one
    two\r
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)
