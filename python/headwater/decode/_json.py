"""JSON objects → columns of a schema: by pyarrow, many records in one call, or one by one by Python's json.

Both give the same rows. pyarrow takes some records that are no JSON, and some that are not one object: those
are kept from it. What it refuses is halved, and the last few records are read by Python, which says what is
wrong with them.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from headwater._author.schema import arrow_schema
from headwater._rows.bad_rows import BadRow, Refused
from headwater._rows.column import misfits
from headwater._rows.nested import column
from headwater._rows.tables import in_one_piece
from headwater.decode._nested import shape, take_field
from headwater.decode._parsing import may_be_deep, parsed
from headwater.decode._shapes import Misfit
from headwater.decode._values import Given, Piece, one_by_one

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["JsonWay"]

_BLANKS = b" \t\r\n"
_FEW = 16
_MOST_RECORDS, _MOST_BYTES = 8192, 32 << 20  # of one call; pyarrow has limits of its own beyond that
_UNSAFE = r"[:,\[]\s*-?(NaN|Inf|[0-9.]+[eE]\+?[0-9]{3})|[0-9.]{39}"
_EXPONENT = r"[:,\[]\s*\"?[+-]?[0-9.]+[eE][+-]?[0-9]+[\"\s,}\]]"
_ESCAPED = r"\\u00([46]5|2[bBdDeE]|3[0-9])"  # an e, a sign, a point or a digit, which could hide one


class JsonWay:
    """The columns of a schema, each from the field of its name; what the schema does not have is ignored."""

    def __init__(self, schema: "StructType") -> None:
        self.schema = schema
        self.arrow_schema = arrow_schema(schema)
        arrow = self.arrow_schema.types
        fields = list(enumerate(schema.fields))
        self._shapes = {f.name: shape(f.dataType, arrow[i], f.nullable, f.name) for i, f in fields}
        self._columns = [column(f.dataType, arrow[i], f.nullable) for i, f in fields]
        self._is_fast = all(part.is_fast for part in self._shapes.values())
        decimals = any(part.has_decimal for part in self._shapes.values())
        self._unsafe = f"{_UNSAFE}|{_EXPONENT}|{_ESCAPED}" if decimals else _UNSAFE
        self._parsing = pj.ParseOptions(
            explicit_schema=pa.schema([(name, part.carrier) for name, part in self._shapes.items()]),
            unexpected_field_behavior="ignore",
        )

    def pieces(self, records: Given) -> Iterator[Piece]:
        for group in _groups(one_by_one(records)):
            yield from self._halved([record.strip(_BLANKS) for record in group])

    def _halved(self, records: list[bytes]) -> Iterator[Piece]:
        if not self._is_fast:
            yield from self._by_python(records)
            return
        try:
            yield self._by_arrow(records)
        except MemoryError:
            raise
        except Exception:
            if len(records) <= _FEW:
                yield from self._by_python(records)
            else:
                half = len(records) // 2
                yield from self._halved(records[:half])
                yield from self._halved(records[half:])

    def _by_arrow(self, records: list[bytes]) -> pa.RecordBatch:
        """All of them, or none.

        Each begins with { and ends with }, and no string goes on behind a line break: so if pyarrow finds as
        many objects as there are records, each record is one of them. What pyarrow gets wrong does not come
        to it: a NUL ends all, NaN and Inf are numbers, large numbers are infinite, and with `null` before the
        first object, or an exponent of -999999999 in a decimal, it ends the process.
        """
        for record in records:
            if not (record.startswith(b"{") and record.endswith(b"}")) or may_be_deep(record):
                raise Refused
        text = b"\n".join(records)
        if b"\0" in text or pc.match_substring_regex(pa.scalar(text), self._unsafe).as_py():
            raise Refused
        text.decode()
        reading = pj.ReadOptions(use_threads=False, block_size=len(text) + 1)
        table = pj.read_json(pa.BufferReader(text), reading, self._parsing)
        if table.num_rows != len(records):
            raise Refused
        return self._batch([in_one_piece(found) for found in table.columns])

    def _batch(self, carriers: list[pa.Array]) -> pa.RecordBatch:
        parts = zip(self._columns, self._shapes.values(), carriers, strict=True)
        arrays = [a if part.is_settled else kind.cast(part.finish(a)) for kind, part, a in parts]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)

    def _by_python(self, records: list[bytes]) -> Iterator[Piece]:
        taken: list[Any] = []
        for record in records:
            try:
                value = parsed(record)
                taken.append([take_field(name, part, value) for name, part in self._shapes.items()])
            except Misfit:
                taken.append(None)
        good = [i for i, values in enumerate(taken) if values is not None]
        wrong = {good[i] for i in misfits(self._build, [taken[i] for i in good])}
        start = 0
        for i, values in enumerate([*taken, None]):
            if values is None or i in wrong:
                if i > start:
                    yield self._build(taken[start:i])
                if i < len(records):
                    yield self._bad(records[i])
                start = i + 1

    def _build(self, rows: list[list[Any]]) -> pa.RecordBatch:
        carriers = [part.carrier for part in self._shapes.values()]
        columns = zip(*rows, strict=True) if rows else ([] for _ in carriers)
        return self._batch([pa.array(v, kind) for v, kind in zip(columns, carriers, strict=True)])

    def _bad(self, record: bytes) -> BadRow:
        """Why it is bad, and the row with nulls for what does not fit."""
        row: list[Any] = [None] * len(self._shapes)
        try:
            value = parsed(record)
        except Misfit as misfit:
            return BadRow(record, misfit.reason, tuple(row))
        reasons = []
        for i, (name, part) in enumerate(self._shapes.items()):
            try:
                row[i] = take_field(name, part, value, whole=True)
            except Misfit as misfit:
                reasons.append(f"field {misfit.path[1:]!r}: {misfit.reason}")
        return BadRow(record, "; ".join(reasons[:3]) or "it does not fit the schema", tuple(row))


def _groups(records: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Of a size that one call takes."""
    start = weight = 0
    for i, record in enumerate(records):
        weight += len(record)
        if weight > _MOST_BYTES or i - start >= _MOST_RECORDS:
            yield records[start : i or 1]
            start, weight = i, len(record)
    if start < len(records):
        yield records[start:]
