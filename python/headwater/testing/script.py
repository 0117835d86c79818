"""A source whose rows, and faults, are a list."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any, Final

from headwater.source import Source

__all__ = ["END", "FAIL", "PAUSE", "ListSource"]

_TYPES = {bool: "BOOLEAN", int: "LONG", float: "DOUBLE", str: "STRING", bytes: "BINARY"}


class _Fail:
    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error

    def __call__(self, error: BaseException) -> _Fail:
        return _Fail(error)


class _Mark:
    """One of a kind, known by its identity."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


FAIL: Final = _Fail()
"""Here the feed raises a RuntimeError, or with `FAIL(error)` that; started again, it goes on behind it.

>>> rows = iter(ListSource([1, FAIL(OSError("gone")), 2]))
>>> try:
...     print(next(rows), next(rows))
... except OSError as error:
...     print("failed:", error)
failed: gone
"""

PAUSE: Final = _Mark("PAUSE")
"""Here the feed waits until the test calls `go_on()` of the source.

>>> source = ListSource([1, PAUSE, 2, END])
>>> rows = iter(source)
>>> first = next(rows)
>>> source.go_on()
>>> print(first, list(rows))
1 [2]
"""

END: Final = _Mark("END")
"""Here the feed returns. Without it, it stays open at the end of the list, as a live feed does.

>>> print(list(ListSource(["a", END, "never"])))
['a']
"""


class _Script:
    """The items, and how far those who read them may go; shared by all that are made of one value."""

    def __init__(self, items: Iterable[Any]) -> None:
        self.items = list(items)
        self.changed = threading.Condition()
        self.granted = 0
        self.failed_at = threading.local()  # a feed that is started again stays in its thread


class ListSource(Source):
    """Yields the items of a list, in order, and does what `FAIL`, `PAUSE` and `END` among them say.

    `items` are any iterable: a row, a list of rows, an Arrow batch or `hw.CAUGHT_UP` is yielded as it is.
    Without a schema there is one column `value`, of the type of the first item.

    >>> words = ListSource([(1, "one"), [(2, "two"), (3, "three")], END], "id LONG, word STRING")
    >>> print(list(words))
    [(1, 'one'), (2, 'two'), (3, 'three')]
    """

    _name = "list_source"

    def __init__(self, items: _Script, schema: str | None = None) -> None:
        self._script = items
        self._closed = False
        self.schema = _guess(items.items) if schema is None else schema

    @classmethod
    def _bind(cls, args: tuple[object, ...], kwargs: dict[str, object]) -> dict[str, object]:
        """The items are no option: this source is handed over as a value, and never named in `format`."""
        bound = dict(zip(("items", "schema"), args, strict=False)) | kwargs
        items: Any = bound["items"]
        return {**bound, "items": items if isinstance(items, _Script) else _Script(items)}

    def read(self) -> Iterator[Any]:
        """The items, one by one, and what is to be done between them."""
        paused = 0
        start = self._script.failed_at.__dict__.pop("place", 0)
        for place, item in enumerate(self._script.items):
            if item is PAUSE:
                paused += 1
            if place < start:
                continue
            if item is PAUSE:
                self._wait_for(paused)
            elif item is END:
                return
            elif isinstance(item, _Fail):
                self._script.failed_at.place = place + 1
                raise item.error or RuntimeError("FAIL, as the script says")
            else:
                yield item
        self._wait_for(None)

    def go_on(self) -> None:
        """Let all feeds of this source pass one `PAUSE` more."""
        with self._script.changed:
            self._script.granted += 1
            self._script.changed.notify_all()

    def close(self) -> None:
        with self._script.changed:
            self._closed = True
            self._script.changed.notify_all()

    def __repr__(self) -> str:
        return f"list_source({len(self._script.items)} items)"

    def _wait_for(self, pause: int | None) -> None:
        """Until that pause may be passed; None: for ever. Or until this is closed."""
        script = self._script
        with script.changed:
            script.changed.wait_for(lambda: self._closed or (pause is not None and script.granted >= pause))


def _guess(items: list[Any]) -> str:
    for item in items:
        if type(item) in _TYPES:
            return f"value {_TYPES[type(item)]}"
        if not isinstance(item, _Fail | _Mark):
            break
    raise TypeError(
        "ListSource cannot tell the schema from its first item: give one, as in "
        "ListSource([…], 'id LONG, word STRING')"
    )
