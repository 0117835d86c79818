"""What a notebook shows of sources and of lists of them: HTML, with nothing in it that a value could add."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import headwater as hw
from headwater.notebook import HtmlList  # private: rows that no feed has
from headwater.sources import random_alpha
from headwater.testing import ListSource, RunningStream

EVIL = "<script>alert('x')</script>\x1b[2J\u202e & \"quoted\""


class Cells(HTMLParser):
    """The cells of a page, row by row, and its tags."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.caption = ""
        self.tags: set[str] = set()
        self._inside = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        self.tags.add(tag)
        assert not attributes
        self._inside = tag
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self._inside == "caption":
            self.caption += data
        elif self.rows:
            self.rows[-1][-1] += data


TABLE = {"table", "caption", "thead", "tbody", "tr", "th", "td", "br"}


def html(value: Any) -> Cells:
    cells = Cells(value._repr_html_())
    assert cells.tags <= TABLE
    return cells


@hw.source("n INT, word STRING")
def notebook_letters(url: str, length: int = 5, *, token: hw.Secret | None = None) -> Iterator[Any]:
    """Letters <b>one</b> by one."""
    yield 1, "a"


def test_a_source_shows_its_schema_and_options_without_secrets() -> None:
    cells = html(notebook_letters(url=EVIL, token="hush"))
    assert cells.caption == "notebook_letters: n INT, word STRING"
    assert cells.rows[0] == ["option", "value"]
    assert dict(cells.rows[1:]) == {"url": repr(EVIL), "length": "5", "token": "***"}
    assert "hush" not in notebook_letters(url="x", token="hush")._repr_html_()


def test_a_source_whose_schema_fails_is_still_shown() -> None:
    class Broken(hw.Source, name="notebook_broken"):
        @property
        def schema(self) -> str:
            raise RuntimeError("no")

        def read(self) -> Iterator[int]:
            yield 1

    assert html(Broken()).caption == "notebook_broken: its schema is not valid"


def test_a_jvm_source_shows_its_options() -> None:
    cells = html(random_alpha(len=5))
    assert cells.caption == "random_alpha"
    assert ["len", "5"] in cells.rows


def test_registered_sources_are_a_list_that_is_shown_as_a_table() -> None:
    registered = hw.registered()
    assert isinstance(registered, list)
    names, *rows = html(registered).rows
    (row,) = [dict(zip(names, row, strict=True)) for row in rows if row[0] == "notebook_letters"]
    assert row["doc"] == "Letters <b>one</b> by one."
    assert row["schema"] == "n INT, word STRING"
    assert "length: an integer, default 5" in row["options"]
    assert row["resumable"] == "no"


def test_a_default_that_is_a_secret_is_not_shown() -> None:
    @hw.source("n INT")
    def notebook_secret(token: hw.Secret = hw.Secret("hush")) -> Iterator[int]:  # noqa: B008
        yield 1

    assert "hush" not in hw.registered()._repr_html_()  # type: ignore[attr-defined]


def test_feeds_are_a_list_that_is_shown_as_a_table(stream: Callable[..., RunningStream]) -> None:
    query = stream(ListSource([1, 2]))
    query.rows(2)
    feeds = hw.feeds()
    assert isinstance(feeds, list)
    names, *rows = html(feeds).rows
    (row,) = [dict(zip(names, row, strict=True)) for row in rows if query.feeds[0].query in row]
    assert (row["source"], row["rows"], row["state"]) == ("list_source", "2", "running")
    assert "last_error" not in names  # no feed has one


@dataclass(frozen=True)
class Part:
    name: str
    lag: int | None


@dataclass(frozen=True)
class Status:
    """Fields that a later version may have."""

    name: str
    rate: float
    is_live: bool
    cursor: Any
    parts: tuple[Part, ...] = ()
    samples: tuple[str, ...] = ()
    nothing: str | None = None
    _hidden: str = field(default="hidden", repr=False)


def test_any_field_is_shown_and_none_can_add_markup() -> None:
    statuses = HtmlList(
        [Status(EVIL, 1234.5, True, {"at": EVIL}, (Part(EVIL, 3), Part("b", None)), (EVIL, "x"))]
    )
    page = statuses._repr_html_()
    assert Cells(page).tags <= TABLE
    for shown in ("name", "rate", "is_live", "cursor", "parts", "samples", "1,234", "yes", r"\x1b[2J\u202e"):
        assert shown in page
    for hidden in ("nothing", "hidden", "\x1b", "\u202e", "<script"):
        assert hidden not in page
    assert re.search(r"<td><table>.*<th>lag</th>.*</table></td>", page)
    assert HtmlList[Status]()._repr_html_() == "<i>none</i>"
