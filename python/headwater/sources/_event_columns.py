"""Events as columns, and events that look alike taken apart column by column. No I/O.

A busy server sends events with the same fields in the same order. For each of those Python does little more
than find the lines.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from io import BytesIO
from itertools import accumulate, compress

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Events", "alike"]

_FIELDS = {b"data", b"event", b"id"}
_MESSAGE = pa.scalar("message", pa.string())
_FAR = 2**31 - 1  # behind the end of any value


@dataclass(frozen=True)
class Events:
    """Events with data, as columns: of Arrow, or lists where each value will be looked at.

    `own` says which have an id of their own, and not that before them.

    >>> events = Events.of([b"one", b"two"], ["message"] * 2, ["7", None], [True, False])
    >>> events.chosen([False, True]).records
    [b'two']
    """

    data: pa.StringArray
    event: pa.StringArray
    id: list[str | None]
    own: list[bool]

    @classmethod
    def of(cls, data: list[bytes], event: list[str], id: list[str | None], own: list[bool]) -> Events:
        return cls(pa.array(data, pa.binary()).cast(pa.string()), pa.array(event, pa.string()), id, own)

    @property
    def records(self) -> list[bytes]:
        """The data, each by itself."""
        found: list[bytes] = self.data.view(pa.binary()).to_pylist()
        return found

    @property
    def longest(self) -> int:
        """How many bytes of data one of them has."""
        return pc.max(pc.binary_length(self.data)).as_py() or 0

    def chosen(self, wanted: list[bool]) -> Events:
        if all(wanted):
            return self
        mask = pa.array(wanted, pa.bool_())
        id, own = compress(self.id, wanted), compress(self.own, wanted)
        return Events(self.data.filter(mask), self.event.filter(mask), list(id), list(own))


def alike(block: bytes, last_id: str | None) -> Events | None:
    """Events that have the same fields in the same order, at most one line each; None: they have not.

    The block is in UTF-8. `last_id` is what those without an id have.
    """
    names = [line.partition(b":")[0] for line in block[: block.find(b"\n\n")].split(b"\n")]
    if b"data" not in names or len({*names} & _FIELDS) < len(names):
        return None
    step = len(names) + 1
    lines = list(BytesIO(block))  # several times as fast as split
    if len(lines) % step or {*lines[step - 1 :: step]} != {b"\n"}:
        return None
    columns = {name: lines[place::step] for place, name in enumerate(names)}
    count = len(columns[b"data"])
    data = _values(columns[b"data"], b"data")
    kinds = _values(columns[b"event"], b"event") if b"event" in names else pa.repeat(_MESSAGE, count)
    ids = _ids(columns[b"id"]) if b"id" in names else [last_id] * count
    if data is None or kinds is None or ids is None:
        return None
    return Events(data, kinds, ids, [b"id" in names] * count)


def _values(lines: list[bytes], name: bytes) -> pa.StringArray | None:
    """What follows the name and a blank, or the name alone; None: the lines are not alike in that.

    A value is first looked at with what lies between it and the next one, which is the same for all.
    """
    begin = name + b": " if lines[0].startswith(name + b": ") else name + b":"
    joined = b"".join([*lines, begin])
    offsets = array("i", accumulate(map(len, lines), initial=len(begin)))
    with_next = pa.StringArray.from_buffers(len(lines), pa.py_buffer(offsets), pa.py_buffer(joined))
    between = b"\n" + begin
    if not joined.startswith(begin) or pc.ends_with(with_next, between).true_count < len(lines):
        return None
    values = pc.binary_replace_slice(with_next, -len(between), _FAR, b"")
    is_spaced = begin.endswith(b" ") or not pc.starts_with(values, b" ").true_count
    is_said = name == b"data" or begin + b"\n" not in lines  # an event without a name is a message
    return values if is_spaced and is_said else None


def _ids(lines: list[bytes]) -> list[str | None] | None:
    """The same for ids; None also if there is one that is ignored, or that takes the last one back."""
    joined = b"".join([b"\n", *lines])[:-1].decode()
    begin = "\nid: " if joined.startswith("\nid: ") else "\nid:"
    first, *values = joined.split(begin)
    is_spaced = begin.endswith(" ") or "\nid: " not in joined
    is_plain = not first and is_spaced and "" not in values and "\0" not in joined
    return [*values] if is_plain and len(values) == len(lines) else None
