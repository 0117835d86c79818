"""The words, quotes and marks of Spark's DDL, as Spark's own lexer takes them."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

__all__ = ["Token", "name_as_ddl", "text_as_ddl", "tokens"]

# Spark's white space is not Python's: `\s` has characters that Spark does not skip, and the other way round.
_SPACE = r"[ \t\n\f\r\x0b\xa0\u1680\u2000-\u200a\u2028\u202f\u205f\u3000]+"
_PATTERN = re.compile(
    rf"""(?P<skipped>{_SPACE}|--[^\r\n]*|/\*.*?\*/)
       | (?P<string>[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
       | (?P<quoted>`(?:[^`]|``)*`)
       | (?P<word>[A-Za-z0-9_]+)
       | (?P<mark><>|[<>(),:])""",
    re.VERBOSE | re.DOTALL,
)
_NUMBER = re.compile(r"[0-9]+(E[0-9]+)?(L|S|Y|F|D|BD)?", re.IGNORECASE)
_ESCAPE = r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([01][0-7]{2})|(.))"
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


@dataclass(frozen=True)
class Token:
    """A piece of the text; `kind` is word, quoted, string, number, mark or end."""

    kind: str
    text: str
    start: int

    @property
    def word(self) -> str:
        """For keywords, which are the same in any case."""
        return self.text.upper() if self.kind in ("word", "mark") else ""

    @property
    def value(self) -> str:
        """What a name or a string stands for, without its quotes."""
        if self.kind == "quoted":
            return self.text[1:-1].replace("``", "`")
        return _unquoted(self.text) if self.kind == "string" else self.text


def tokens(text: str, fail: Callable[[Token, str], NoReturn]) -> list[Token]:
    """The pieces of `text`, an `end` after them, so that there is always a next one to look at."""
    found, start = [], 0
    while start < len(text):
        match = _PATTERN.match(text, start)
        if match is None:
            fail(Token("mark", text[start], start), _strange(text[start]))
        kind = "number" if match.lastgroup == "word" and _NUMBER.fullmatch(match[0]) else str(match.lastgroup)
        if kind == "quoted" and match[0] == "``":
            fail(Token("mark", match[0], start), "a name in back quotes must not be empty")
        if kind != "skipped":
            found.append(Token(kind, match[0], start))
        start = match.end()
    end = Token("end", "", len(text))
    return [*found, end, end]


def name_as_ddl(name: str) -> str:
    """The name as it is where that can be read back, else in back quotes."""
    plain = re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name)
    return name if plain else "`" + name.replace("`", "``") + "`"


def text_as_ddl(text: str) -> str:
    r"""With `\'`, not `''`: Spark 4.0 does not know the latter."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _unquoted(literal: str) -> str:
    if literal[0] in "rR":
        return literal[2:-1]
    quote = literal[0]
    text = re.sub(f"{_ESCAPE}|{quote}{quote}", _character, literal[1:-1], flags=re.DOTALL)
    # Two \u escapes may be the halves of one character.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _character(match: re.Match[str]) -> str:
    short, long, octal, other = match.groups()
    if short or long:
        return chr(int(short or long, 16))
    if octal:
        return chr(int(octal, 8))
    return _ESCAPED.get(other, other) if other else match[0][0]


def _strange(character: str) -> str:
    if character in "'\"`":
        return f"the quote {character} is not closed"
    hint = "; a name with other characters than letters, digits and _ goes in `back quotes`"
    return f"{character!r} has no meaning in a schema{hint}"
