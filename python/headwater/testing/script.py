"""A source whose rows and faults are items of a list."""

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
    """An item with a special meaning, compared by identity."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


FAIL: Final = _Fail()
"""The feed raises a RuntimeError, or `error` with `FAIL(error)`. When restarted, it continues after it.

>>> rows = iter(ListSource([1, FAIL(OSError("gone")), 2]))
>>> try:
...     print(next(rows), next(rows))
... except OSError as error:
...     print("failed:", error)
failed: gone
"""

PAUSE: Final = _Mark("PAUSE")
"""The feed waits until the test calls `go_on()` on the source.

>>> source = ListSource([1, PAUSE, 2, END])
>>> rows = iter(source)
>>> first = next(rows)
>>> source.go_on()
>>> print(first, list(rows))
1 [2]
"""

END: Final = _Mark("END")
"""The feed ends. Without it, the feed stays open at the end of the list, like a live feed.

>>> print(list(ListSource(["a", END, "never"])))
['a']
"""


class _Script:
    """The items, and how many pauses the feeds may pass; shared by all instances made from one value."""

    def __init__(self, items: Iterable[Any]) -> None:
        self.items = list(items)
        self.changed = threading.Condition()
        self.pauses_passed = 0
        self.resume_at = threading.local()  # a feed that is restarted stays in its thread


class ListSource(Source):
    """Yields the items of a list in order. `FAIL`, `PAUSE` and `END` among them control the feed.

    `items` may be any iterable of what a source can yield: rows, lists of rows, Arrow batches,
    `hw.CAUGHT_UP`. Without a schema there is one column `value`, with the type of the first item.

    >>> words = ListSource([(1, "one"), [(2, "two"), (3, "three")], END], "id LONG, word STRING")
    >>> print(list(words))
    [(1, 'one'), (2, 'two'), (3, 'three')]
    """

    _name = "list_source"

    def __init__(self, items: _Script, schema: str | None = None) -> None:
        self._script = items
        self._closed = False
        self.schema = _infer_schema(items.items) if schema is None else schema

    @classmethod
    def _bind(cls, args: tuple[object, ...], kwargs: dict[str, object]) -> dict[str, object]:
        """The items are not an option: this source is passed as a value, never named in `format`."""
        bound = dict(zip(("items", "schema"), args, strict=False)) | kwargs
        items: Any = bound["items"]
        return {**bound, "items": items if isinstance(items, _Script) else _Script(items)}

    def read(self) -> Iterator[Any]:
        """Yields the items, and fails, pauses or ends where the list says so."""
        pauses = 0
        start = self._script.resume_at.__dict__.pop("index", 0)
        for index, item in enumerate(self._script.items):
            if item is PAUSE:
                pauses += 1
            if index < start:
                continue
            if item is PAUSE:
                self._wait_for_pause(pauses)
            elif item is END:
                return
            elif isinstance(item, _Fail):
                self._script.resume_at.index = index + 1
                raise RuntimeError("FAIL in the items of a ListSource") if item.error is None else item.error
            else:
                yield item
        self._wait_for_pause(None)

    def go_on(self) -> None:
        """Lets all feeds of this source pass one more `PAUSE`."""
        with self._script.changed:
            self._script.pauses_passed += 1
            self._script.changed.notify_all()

    def close(self) -> None:
        with self._script.changed:
            self._closed = True
            self._script.changed.notify_all()

    def __repr__(self) -> str:
        return f"list_source({len(self._script.items)} items)"

    def _wait_for_pause(self, pause: int | None) -> None:
        """Waits until so many pauses may be passed, or, with None, until the source is closed."""
        script = self._script
        with script.changed:
            script.changed.wait_for(
                lambda: self._closed or (pause is not None and script.pauses_passed >= pause)
            )


def _infer_schema(items: list[Any]) -> str:
    for item in items:
        if type(item) in _TYPES:
            return f"value {_TYPES[type(item)]}"
        if not isinstance(item, _Fail | _Mark):
            break
    raise TypeError(
        "ListSource cannot infer the schema from its first item: pass one, as in "
        "ListSource([…], 'id LONG, word STRING')"
    )
